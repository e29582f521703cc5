"""Networks of timm, tiny and at random: their own preprocessing and features; where weights come
from; errors where they cannot be had."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from scroll import Adaptation, Embedder, Preprocessing, Scroll
from scroll.embedding.libraries import timm_network
from tests.scroll.conftest import refused, toy_images

timm = pytest.importorskip('timm')
hub = pytest.importorskip('huggingface_hub')
IMAGES = np.random.default_rng(0).integers(256, size=(4, 40, 56, 3), dtype=np.uint8)
OF_TIMM = ['test_vit', 'test_convnext']


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of the hub, and no hub."""
    monkeypatch.setattr(hub.constants, 'HF_HUB_CACHE', str(tmp_path / 'hub'))
    asked = []

    def unreachable(name, *more):
        asked.append(name)
        raise OSError('no route\nto the hub')

    monkeypatch.setattr(hub, 'file_exists', unreachable)
    return tmp_path / 'hub', asked


def put(cache: Path, repository: str, files: dict) -> None:
    """Files into a cache of the hub: name -> path."""
    folder = cache / f'models--{repository.replace("/", "--")}'
    (folder / 'refs').mkdir(parents=True)
    (folder / 'refs' / 'main').write_text('0' * 40)
    (folder / 'snapshots' / ('0' * 40)).mkdir(parents=True)
    for name, path in files.items():
        shutil.copy(path, folder / 'snapshots' / ('0' * 40) / name)


def pictures() -> list:
    """Without black and white, which Pillow cuts off between its two passes."""
    return [Image.fromarray(100 + image // 5) for image in IMAGES]


@pytest.mark.parametrize('name', OF_TIMM)
def test_images_are_prepared_and_features_made_as_timm_does_it(name):
    embedder = Embedder.from_timm(name, random=0, chunk=4)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        body = timm.create_model(name, num_classes=0).eval()
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(body))
    expected = torch.stack([transform(picture) for picture in pictures()])
    x = embedder.preprocessing(
        torch.from_numpy(np.stack([np.array(picture) for picture in pictures()]))
    )
    assert x.shape == expected.shape
    assert (x - expected).abs().max() < 2.1 / 255 / min(embedder.preprocessing.std)
    with torch.no_grad():
        theirs = body(embedder.preprocessing(torch.from_numpy(IMAGES)))
    np.testing.assert_allclose(embedder.features(IMAGES), theirs, rtol=1e-3, atol=1e-5)
    features, keys = embedder(IMAGES)
    for order in ([2, 0, 3, 1], [3]):  # whatever the neighbours
        np.testing.assert_array_equal(embedder(IMAGES[order])[0], features[order])
    assert embedder.dim == features.shape[1]
    assert len(np.unique(keys)) == 4


def test_a_seed_and_a_size_each_give_digests_of_their_own():
    made = [
        Embedder.from_timm('test_vit', random=0, chunk=2),
        Embedder.from_timm('test_vit', random=1, chunk=2),
        Embedder.from_timm('test_vit', random=0, chunk=2, img_size=32),
    ]
    assert len({e.psi_digest for e in made}) == len({e.digest for e in made}) == len(made)
    again = Embedder.from_timm('test_vit', random=np.int64(0), chunk=2)
    assert again.digest == made[0].digest
    before = torch.get_rng_state()
    Embedder.from_timm('test_vit', random=3, chunk=2)
    assert torch.equal(before, torch.get_rng_state())


def test_the_number_of_threads_is_part_of_the_digest_with_products_of_matrices_or_few_images(
    monkeypatch,
):
    def embedders():
        return [
            Embedder.from_timm(name, random=0, chunk=chunk)
            for name, chunk in zip(['test_vit'] + 2 * ['mobilenetv3_small_050'], (16, 16, 15))
        ]

    one = embedders()
    monkeypatch.setattr(torch, 'get_num_threads', lambda: 2)
    assert [a.digest == b.digest for a, b in zip(one, embedders())] == [False, True, False]
    assert ['1 thread,' in e.valid_on for e in one] == [True, False, True]
    with refused('hold on .* 1 thread, .* here is .* 2 threads, .*: make another'):
        one[0](np.zeros((1, 8, 8, 3), np.uint8))


def checkpoint(tmp_path, change):
    """(file of a network's tensors, as `change` lays them out; the network)."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        net = timm.create_model('test_vit')
    torch.save(change(net.state_dict()), tmp_path / 'w.pth')
    return tmp_path / 'w.pth', net


def test_a_checkpoint_file_of_any_layout_that_timm_reads(tmp_path):
    path, net = checkpoint(tmp_path, lambda state: {'model': state})  # as DeiT's
    net.reset_classifier(0)
    read, _ = timm_network('test_vit', file=path)
    assert read.body.state_dict().keys() == net.state_dict().keys()
    assert all(torch.equal(t, net.state_dict()[key]) for key, t in read.body.state_dict().items())


def test_a_file_that_does_not_fit_is_one_line(tmp_path):
    for spoil in (
        lambda state: {key: t for key, t in state.items() if key != 'blocks.0.attn.qkv.weight'},
        lambda state: state | {'blocks.0.attn.qkv.weight': torch.zeros(3, 3)},
        lambda state: {'code': Path},
        lambda state: {},
    ):
        path, _ = checkpoint(tmp_path, spoil)
        with refused('timm:test_vit.*w.pth'):
            timm_network('test_vit', file=path)


def test_weights_of_the_cache_need_no_network(cache, tmp_path):
    folder, asked = cache
    net = timm.create_model('test_vit')
    save_file(net.state_dict(), tmp_path / 'w.safetensors')
    put(folder, 'timm/test_vit.r160_in1k', {'model.safetensors': tmp_path / 'w.safetensors'})
    read, _ = timm_network('test_vit')
    assert torch.equal(read.body.blocks[0].attn.qkv.weight, net.blocks[0].attn.qkv.weight)
    assert not asked


def test_weights_that_cannot_be_had_are_one_line(cache):
    with refused('model.safetensors .*timm/test_vit') as caught:
        timm_network('test_vit')
    assert 'no route to the hub' in str(caught.value)
    assert len(cache[1]) == 1


@pytest.mark.parametrize(
    'make, words',
    [
        (
            lambda: Embedder.from_timm('test_vitt', random=0),
            'no such network; did you mean test_vit',
        ),
        (lambda: Embedder.from_timm('test_mambaout'), 'no weights of it on the hub'),
        (lambda: Embedder.from_timm('test_vit', random=-1), 'random -1'),
        (lambda: Embedder.from_timm('test_vit', file='w.pth'), 'no such file'),
        (lambda: Embedder.from_timm('test_convnext', random=0, img_size=32), 'img_size'),
        (lambda: Embedder.from_timm('test_vit', random=0, img_size=100), 'divisible'),
        (lambda: Embedder.from_timm('test_vit', random=0, file='x'), 'random and file'),
        (lambda: Embedder.from_timm('test_vit', random=0, dtype='integer'), 'IntegerNetwork'),
    ],
)
def test_what_cannot_be_is_one_line(make, words):
    with refused(words):
        make()


def test_a_library_that_is_missing_and_images_of_another_size_are_one_line(monkeypatch):
    net, _ = timm_network('test_vit3', random=0)
    with refused('takes images of 160 pixels, these have 96: give --input_size 160'):
        Embedder(net, Preprocessing(96), chunk=2)
    monkeypatch.setitem(sys.modules, 'timm', None)
    with refused('pip install timm'):
        Embedder.from_timm('vit', random=0)


def test_a_learner_adapts_to_images_that_are_not_square():
    images, labels = toy_images(4, 24)
    learner = Scroll(
        Embedder.from_timm('test_vit', random=0, img_size=32, chunk=4),
        buffer_size=6,
        adaptation=Adaptation(mode='adapters', iterations=3, minibatch=3, lr=1.0),
    )
    digest = learner.partial_fit(images[:, :, :16], labels).adapt().adapted_.digest()
    assert learner.adapt().adapted_.digest() == digest
    assert learner.adapted_.mode == 'adapters'
    assert learner.adapted_.embedder.psi_digest != learner.embedder.psi_digest
