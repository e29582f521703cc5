"""Integer networks made at first use from recorded scales: the same one each time, kept, and
refused where it is another.
"""

import hashlib
import json

import pytest
import torch

from backbone import recorded_scales, weight_files, weights
from bench.run.building import initialize
from scroll.embedding.images import Preprocessing
from scroll.embedding.integer_network import golden_images
from scroll.embedding.quantisation import quantise_network
from tests.conftest import refused
from tests.scroll.conftest import tiny_net

NAME = 'tiny'
SIZE = 16


@pytest.fixture(scope='module')
def packaged(tmp_path_factory):
    """Weights in a package, with their recorded scales."""
    folder = tmp_path_factory.mktemp('packaged')
    models = folder / 'tiny_of_a_test' / 'models'
    models.mkdir(parents=True)
    torch.save(tiny_net(width=8).state_dict(), models / 'tiny.pth')
    digest = hashlib.sha256((models / 'tiny.pth').read_bytes()).hexdigest()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setitem(
            weight_files.PACKAGED,
            NAME,
            weight_files.Packaged('tiny-of-a-test', 'models/tiny.pth', digest),
        )
        patch.setattr(weight_files, 'SHIPPED', folder)
        patch.setattr(recorded_scales, 'INPUT_SIZES', (SIZE,))
        patch.setattr(recorded_scales, 'RECORDED_AT', SIZE)
        net, _ = weights.network(NAME)
        recorded_scales.record(
            weights.integer_file(NAME), net, Preprocessing(SIZE), golden_images(), {'images': 8}
        )
        yield


def test_scales_give_the_network_that_images_give_to_four_digits(packaged):
    net, preprocessing = weights.network(NAME, SIZE)
    images = torch.from_numpy(golden_images())
    made, expected = (
        network.features(network.prepare(images))
        for network in (
            weights.integers_of(NAME, net, preprocessing),
            quantise_network(net, preprocessing, golden_images()),
        )
    )
    assert torch.nn.functional.cosine_similarity(made, expected).min() > 0.999


def test_a_network_that_was_made_is_kept_and_made_again_if_damaged(packaged, tmp_path):
    digests = [weights.embedder(NAME, tmp_path, SIZE).digest for _ in range(2)]
    (kept,) = (tmp_path / 'integers').iterdir()
    before = kept.read_bytes()
    kept.write_bytes(before[:-30])
    digests.append(weights.embedder(NAME, tmp_path, SIZE).digest)
    assert len(set(digests)) == 1
    assert kept.stat().st_size == len(before)


def test_a_run_takes_integers_at_the_recorded_sizes_alone(packaged, parse):
    words = '--weights', NAME, '--buffer_size 0 --model_config base'
    assert initialize(parse('scroll', *words, '--input_size 20'))[0].embedder.dtype == 'float32'
    with refused('16 pixels', 'none for 20', '--input_size'):
        initialize(parse('scroll', *words, '--input_size 20 --embedding_dtype integer'))


@pytest.mark.parametrize(
    'part, value, words',
    [
        ('psi', '0' * 64, 'made from other weights'),
        ('scales', None, 'another integer network here'),
        ('format', 'another', 'damaged'),
    ],
)
def test_scales_of_another_network_are_refused(packaged, tmp_path, monkeypatch, part, value, words):
    content = recorded_scales.read(weights.integer_file(NAME))
    content['scales'][3] *= 2 if part == 'scales' else 1
    content[part] = value or content[part]
    (tmp_path / f'{NAME}.scales.json').write_text(json.dumps(content))
    monkeypatch.setattr(weight_files, 'SHIPPED', tmp_path)
    with refused(words):
        weights.embedder(NAME, input_size=SIZE)
