"""The weights in the repository: small enough for it, whole, and free of the classes that the
streams have.
"""

import pytest
import torch

from backbone import weights
from bench.pretraining import shared_classes
from tests.conftest import ROOT

SHARED = shared_classes()
NAMES = 'compact', 'wide', 'small'


@pytest.mark.parametrize('name, width', list(zip(NAMES, (32, 64, 16))))
def test_classes_of_streams_are_left_out_and_every_tensor_has_its_place(name, width):
    assert (ROOT / 'backbone' / 'weights' / f'{name}.safetensors').stat().st_size < 30e6
    about = weights.load(name)
    seen = set(about.info['classes'])
    left_out = about.info['left_out']
    assert len(seen) == 52
    assert left_out == SHARED['cifar100']
    assert not seen & set(left_out)
    assert set(SHARED['cifar10']) <= seen
    net, preprocessing = weights.network(name)
    size = preprocessing.input_size
    with torch.no_grad():
        features = net(
            torch.randn(4, 3, size, size, generator=torch.Generator().manual_seed(0)),
            returnt='features',
        )
    assert features.shape == (4, 8 * width)
    assert features.isfinite().all()
    assert features.std(dim=0).mean() > 0.01
