"""Methods that read a data set themselves, on data sets as users of Mammoth write them: transforms
of one image, or None.
"""

import pytest
import torch

from bench.run.building import initialize
from bench.run.training import train
from tests.conftest import refused
from tests.datasets.conftest import run

ENS = '--n_classifiers 6 --top_k 2'
GDUMB = '--buffer_size 21 --fitting_epochs 1'


@pytest.mark.parametrize(
    'method, dataset, flags',
    [
        ('ens', 'picture-digits', ENS),
        ('joint', 'unequal-digits', '--label_perc 0.5'),
        ('joint', 'flowing-digits', ''),
        ('gdumb', 'unequal-digits', GDUMB),
        ('gdumb', 'flowing-digits', GDUMB),
    ],
)
def test_a_run(arguments, tmp_path, method, dataset, flags):
    row = run(arguments(dataset, flags, '--base_path', tmp_path, model=method))
    assert 0 <= row['final_accuracy'] <= 100


def test_frozen_features_of_images_of_no_known_size(arguments, tmp_path):
    with refused('SIZE', 'shuffled-digits'):
        run(arguments('shuffled-digits', ENS, '--base_path', tmp_path, model='ens'))


def test_each_domain_keeps_its_own_transform(arguments):
    """Here each task has a permutation of the pixels; with that of the last for all, there would be
    one domain only.
    """
    model, dataset, args = initialize(
        arguments('shuffled-digits', '--batch_size 400', model='joint')
    )
    images = []
    forward = model.net.forward
    model.net.forward = lambda x, *more: (
        images.append(x.clone()) if model.net.training else None,
        forward(x, *more),
    )[1]
    train(model, dataset, args)
    (batch,) = images
    expected = torch.stack([task[i][0] for task in model.collected for i in range(len(task))])
    found, wanted = (sorted(map(tuple, rows.flatten(1).tolist())) for rows in (batch, expected))
    assert len(model.collected) == 3
    assert found == wanted
