"""Features written to a file are those that a learner with the same network makes itself, whatever
the sizes of images.
"""

import json
import sys

import numpy as np
import pytest
from PIL import Image

from backbone.weights import embedder
from bench import embedding
from core.commands import run_command
from datasets.utils.readers import digits
from scroll import Scroll
from scroll.files.features import open_files, read_blocks
from scroll.files.learning import learn


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """call(*words): columns of the file that the script writes, what it is made by, and its last
    line.
    """

    def run(name, *words):
        path = str(tmp_path / name)
        monkeypatch.setattr(sys, 'argv', ['embed_with.py', '-o', path, *map(str, words)])
        embedding.main()
        ((_, block),) = read_blocks(open_files([path]), 'all')
        return (
            path,
            block,
            json.loads(np.load(path)['made_by'][()]),
            capsys.readouterr().out.splitlines()[-1],
        )

    return run


def test_a_data_set(call, tiny_weights):
    path, block, about, line = call(
        'd.npz',
        '--embedder',
        f'backbone.weights:embedder,name={tiny_weights}',
        '--dataset',
        'seq-digits',
    )
    data = digits()
    made = embedder(tiny_weights)
    whole = Scroll(made, buffer_size=0).partial_fit(data.train, data.train_labels.astype(str))
    learner = Scroll(buffer_size=0)
    assert learn(learner, [path]) == (1442, 1797)
    assert learner.digest() == whole.digest()
    assert about['psi_digest'] == made.psi_digest
    assert about['data'] == 'seq-digits'
    assert line.endswith('1442 to train, 355 to test, d = 32')
    assert block.y[1442:].tolist() == data.test_labels.astype(str).tolist()
    assert 'torch' in about['versions']


def test_a_folder_of_images_of_any_size(call, tiny_weights, tmp_path):
    random = np.random.default_rng(0)
    expected = {}
    made = embedder(tiny_weights)
    for i, (split, label) in enumerate(
        [('train', 'a'), ('train', 'b'), ('test', 'a'), ('test', 'b')] * 2
    ):
        image = random.integers(256, size=(20 + i % 3, 30, 3), dtype=np.uint8)
        path = tmp_path / split / label / f'{i}.png'
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
        expected[f'{split}/{label}/{i}.png'] = made.features(image[None])[0]
    _, block, about, _ = call(
        'f.npz',
        '--embedder',
        f'backbone.weights:embedder,name={tiny_weights}',
        '--data_dir',
        tmp_path,
    )
    assert sorted(block.id) == sorted(expected)
    assert all((x == expected[name]).all() for x, name in zip(block.X, block.id))
    assert [name.split('/')[:2] for name in block.id] == list(map(list, zip(block.split, block.y)))
    assert 'Pillow' in about['decoded_by']


@pytest.mark.parametrize(
    'words',
    [
        '--dataset seq-features',
        '--dataset seq-digits --data_dir x',
        '--data_dir x',
        '--dataset seq-digits -o x.csv',
        '--dataset seq-digits --embedder timm:test_vit,rndom=0',
    ],
)
def test_what_cannot_be_embedded(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys,
        'argv',
        ['embed_with.py', '-o', 'x.npz', '--embedder', 'timm:test_vit,random=0', *words.split()],
    )
    code = run_command(embedding.main)
    said = capsys.readouterr().err
    assert (code, len(said.splitlines())) == (2, 1), said
    assert 'rndom' not in words or 'unexpected keyword' in said, said
