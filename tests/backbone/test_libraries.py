"""`--weights timm:NAME` on the command line: tiny networks at random, and names that cannot be."""

import csv
import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from bench.certify import command as certify
from scroll import Embedder
from scroll.embedding.machine import describe_machine
from scroll.files.images import decoders
from tests.backbone.conftest import build
from tests.conftest import files_below, words_of

pytest.importorskip('timm')


@pytest.fixture(scope='module')
def pictures(tmp_path_factory):
    """A folder of four classes of pictures that are not square."""
    folder = tmp_path_factory.mktemp('pictures')
    random = np.random.default_rng(0)
    for part, count in (('train', 4), ('test', 2)):
        for c in range(4):
            (folder / part / f'class {c}').mkdir(parents=True)
            for number in range(count):
                image = random.integers(60, size=(40, 48, 3)) + 150 * (np.arange(3) == c)
                Image.fromarray(image.astype(np.uint8)).save(
                    folder / part / f'class {c}' / f'{number}.png'
                )
    return folder


@pytest.fixture
def run(command_line, pictures, tmp_path):
    """`main.py --model scroll` on the pictures: (exit code, stdout, stderr, row)."""

    def call(*words):
        code, out, err = command_line(
            '--model scroll --dataset seq-folder --n_splits 2 --num_threads 1 --embed_chunk 4',
            '--non_verbose 1 --device cpu --buffer_size 4 --iterations 1 --minibatch_size 4',
            *('--data_dir', pictures, '--base_path', tmp_path),
            *words,
        )
        rows = [
            path
            for path in files_below(tmp_path)
            if path.name == 'mean_accs.csv' and 'class-il' in str(path)
        ]
        return code, out, err, list(csv.DictReader(rows[0].open()))[-1] if rows else None

    return call


def test_scroll_on_a_network_of_timm_with_one_flag(run):
    name = 'timm:test_vit,random=0,img_size=32'
    code, out, err, row = run('--weights', name, '--adaptation adapters')
    assert code == 0, err
    out = ' '.join(out.split())
    assert row['decoded_by'] == decoders()
    assert f'on {describe_machine()}, cuDNN' in out
    embedder = Embedder.from_timm('test_vit', chunk=4, random=0, img_size=32)
    assert row['psi_digest'] == embedder.psi_digest
    assert row['backbone'] == 'timm'
    key = json.loads(row['run_key'])
    assert key['given']['weights'] == name
    assert key['psi_digest'] == embedder.psi_digest
    assert row['adapted_digest']


def test_a_certificate_says_where_it_holds(pictures, tmp_path):
    words = words_of(
        '--dataset seq-folder --weights timm:test_vit,random=0 --schedules 2 --specs iid',
        '--buffers 1 --buffer_size 4 --embed_chunk 4 --device cpu',
        *('--data_dir', pictures, '--base_path', tmp_path, '--out', tmp_path),
    )
    assert certify.certify(*certify.parse_options(words)) == 0
    certificate = json.loads(next(tmp_path.glob('certificate-*.json')).read_text())
    assert certificate['settings']['weights'] == 'timm:test_vit,random=0'
    assert {'statistics', 'f_T, ridge, lambda 0.1'} <= set(certificate['here'])
    assert 'statistics' not in certificate['anywhere']
    assert certificate['inputs']['decoded_by'] == decoders()


@pytest.mark.parametrize(
    'words, said',
    [
        ('timm:test_vit,seed=0', 'seed=0: expected NAME and, behind commas, random=..., img_size'),
        ('timm:test_vit,random=x', 'random=x'),
        ('transformers:vit', 'neither weights nor a file'),
        ('timm:test_vit,random=0 --embedding_dtype integer', 'no integer network'),
        ('timm:test_nfnet,random=0', 'NormFreeNet: no kind of adapters fits'),
        ('timm:test_vit,random=0 --backbone resnet18', 'test_vit,random=0 are for timm'),
    ],
)
def test_what_cannot_be_is_one_line(run, words, said):
    code, _, err, _ = run(f'--weights {words}')
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1


@torch.no_grad()
def test_what_the_backbone_returns():
    net = build('timm', timm_name='test_vit', img_size=32).eval()
    x = torch.randn(3, 3, 32, 32)
    logits, features = net(x, returnt='both')
    assert logits.shape == (3, 5)
    assert features.shape == (3, net.feature_dim)
    assert torch.equal(net.classifier(features), logits)
    assert torch.equal(net(x), logits)
    assert all(map(torch.equal, net(x, returnt='full'), (logits, features)))  # it has no maps
    net.classifier = torch.nn.Linear(net.feature_dim, 7)
    assert net(x).shape == (3, 7)
    assert len(net.get_params()) == sum(p.numel() for p in net.parameters())


def test_without_timm_the_run_ends_in_one_line(monkeypatch, command_line):
    monkeypatch.setitem(sys.modules, 'timm', None)
    code, _, err = command_line(
        '--model sgd --dataset seq-digits --weights none --backbone timm --lr 0.1'
    )
    assert code == 2
    assert 'pip install timm' in err
    assert len(err.splitlines()) == 1
