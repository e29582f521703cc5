"""`pretrain.py quantise`, and runs with what it makes."""

import shutil

import pytest

from bench.pretraining import command as pretrain
from bench.run.building import initialize
from bench.run.training import train
from scroll.embedding.integer_network import IntegerNetwork
from tests.conftest import refused
from tests.test_pretrain import base, learn  # noqa: F401 (a fixture)

RUN = ['--buffer_size 20 --iterations 2 --model_config base --embedding_dtype integer']


@pytest.fixture
def quantised(learn, base, capsys):
    """(weights file, what quantise said)."""
    path = learn(base)
    capsys.readouterr()
    assert pretrain.main(['quantise', str(path), '--base_path', str(base), '--images', '40']) == 0
    return path, capsys.readouterr().out


def test_a_run_in_integers_and_refusals(quantised, learn, base, parse, tmp_path):
    path, said = quantised
    network, about = IntegerNetwork.load(path.with_suffix('.integer.npz'))
    assert 'nearest centroid on unseen classes' in said
    assert network.digest()[:16] in said
    assert about['images'] == 40
    row = train(
        *initialize(parse('scroll', *RUN, '--weights', path, '--embed_chunk 5', base_path=tmp_path))
    )
    assert row['embedding_digest'] == network.digest()
    assert row['embed_dtype'] == 'integer'
    other = learn(base, 'other.safetensors', seed=5)
    with refused('other.integer.npz is not there', 'pretrain.py quantise'):
        initialize(parse('scroll', *RUN, '--weights', other))
    shutil.copy(path.with_suffix('.integer.npz'), other.with_suffix('.integer.npz'))
    with refused('made from other weights', 'pretrain.py quantise'):
        initialize(parse('scroll', *RUN, '--weights', other))
    with refused('--input_size 20', '16 pixels'):
        initialize(parse('scroll', *RUN, '--weights', path, '--input_size 20'))
    with refused('--weights none'):
        initialize(parse('scroll', *RUN, '--weights none'))


def test_the_shipped_integers_compute_what_their_file_says(parse):
    """Features come from the integer network and are named in the row."""
    embedder = initialize(parse('scroll', *RUN, '--weights compact'))[0].embedder
    assert embedder.digest.startswith('881ce32c974df4e3')
    assert embedder.net.golden == embedder.net.check()
