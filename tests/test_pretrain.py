"""Training psi: on the right classes only, to the same bytes."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backbone import weights
from backbone.resnet18 import ResNet18
from bench.pretraining import command as pretrain
from bench.pretraining import shared_classes, training
from tests.bench.test_safe_pickle import dump
from tests.conftest import ROOT, files_below, python, quick, refused

SHARED = shared_classes()
KEPT = ['n00000001', 'n99999999']
LEFT_OUT = ['n02747177', 'n04389033']  # which CIFAR-100 has
BIRD = 'n01558993'  # which CIFAR-10 has


def make_split(home, left_out_seed: int = 1, classes=(KEPT[1], LEFT_OUT[0], KEPT[0], LEFT_OUT[1])):
    """miniImageNet's training pickle with classes to learn (50 images each) and some that CIFAR-100
    also has (200 each).
    """
    random = np.random.default_rng(0)
    other = np.random.default_rng(left_out_seed)
    images = []
    rows = {}
    for i, wnid in enumerate(classes):
        count, source = (200, other) if wnid in LEFT_OUT else (50, random)
        rows[wnid] = list(range(sum(map(len, images)), sum(map(len, images)) + count))
        small = source.integers(0, 150, (count, 21, 21, 3)) + 25 * i
        images.append(small.astype(np.uint8).repeat(4, 1).repeat(4, 2))
    home.mkdir(parents=True)
    dump(
        home / 'mini-imagenet-cache-train.pkl',
        {'image_data': np.concatenate(images), 'class_dict': rows},
    )


@pytest.fixture(scope='module')
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp('pretrain')
    make_split(folder / 'MINIIMAGENET')
    return folder


@pytest.fixture
def learn(tmp_path):
    """learn(base, seed=3): run pretrain.main; returns the file."""

    def run(base, out='psi.safetensors', **flags):
        flags = {
            'width': 4,
            'input_size': 16,
            'epochs': 1,
            'batch_size': 20,
            'base_path': base,
            'out': tmp_path / out,
            'device': 'cpu',
        } | flags
        words = [
            [f'--{name}', *(value if isinstance(value, list) else [value])]
            for name, value in flags.items()
            if value is not None
        ]
        assert pretrain.main([str(word) for group in words for word in group]) == 0
        return tmp_path / out

    return run


def same(first, second) -> bool:
    """Return whether two weights files have the same tensors."""
    first, second = (weights.load(str(path)).tensors for path in (first, second))
    return first.keys() == second.keys() and all(
        torch.equal(t, second[name]) for name, t in first.items()
    )


def test_a_short_run_gives_usable_weights_without_the_shared_classes(learn, base, capsys):
    path = learn(base)
    loaded = weights.load(str(path))
    net = ResNet18(3, width=4)
    loaded.load_into(net)
    assert (loaded.backbone, loaded.options, loaded.input_size) == ('resnet18-md', {'width': 4}, 16)
    info = loaded.info
    assert info['classes'] == KEPT
    assert info['left_out'] == SHARED['cifar100']
    assert len(info['data_digest']) == 64
    assert 0 <= info['unseen_ncc_accuracy'] <= 100
    assert info['recipe'] == {
        'backbone': 'resnet18-md',
        'width': 4,
        'leave_out': ['cifar100'],
        'seed': 0,
        'dtype': 'float32',
        'input_size': 16,
        'epochs': 1,
        'batch_size': 20,
        'lr': 0.1,
    }
    assert torch.isfinite(net.eval().features(torch.rand(2, 3, 16, 16))).all()
    out = capsys.readouterr().out
    assert 'epoch 1' in out
    assert 'unseen classes' in out
    assert files_below(path.parent) == [path]


def test_images_of_the_shared_classes_have_no_part_in_the_weights(learn, base, tmp_path):
    make_split(tmp_path / 'other' / 'MINIIMAGENET', left_out_seed=2)
    first, second = (
        learn(where, f'{i}.safetensors') for i, where in enumerate((base, tmp_path / 'other'))
    )
    assert same(first, second)
    assert (
        weights.load(str(first)).info['data_digest']
        == weights.load(str(second)).info['data_digest']
    )


def test_classes_of_both_streams_are_left_out_or_none(learn, tmp_path, capsys):
    make_split(tmp_path / 'MINIIMAGENET', classes=[*KEPT, BIRD, *LEFT_OUT])
    info = weights.load(str(learn(tmp_path, leave_out=['cifar10', 'cifar100']))).info
    assert info['classes'] == KEPT
    assert info['left_out'] == SHARED['cifar10'] | SHARED['cifar100']
    info = weights.load(str(learn(tmp_path, leave_out='none'))).info
    assert info['classes'] == sorted([*KEPT, BIRD, *LEFT_OUT])
    assert info['left_out'] == {}
    assert 0 <= info['seen_ncc_accuracy'] <= 100
    assert ' seen classes' in capsys.readouterr().out


def numbered(counts) -> tuple:
    """Images (N, 2, 2, 3) of which no two are the same, and labels."""
    n = sum(counts)
    pixels = np.stack([np.arange(n) // 256, np.arange(n) % 256, np.zeros(n)], 1).astype(np.uint8)
    return np.broadcast_to(pixels[:, None, None], (n, 2, 2, 3)).copy(), np.repeat(
        np.arange(len(counts)), counts
    )


def ids(images: torch.Tensor) -> torch.Tensor:
    return images[..., 0, 0, 0].long() * 256 + images[..., 0, 0, 1]


@quick
@given(st.lists(st.integers(2, 260), min_size=2, max_size=5), st.integers(0, 4))
def test_what_probes_the_features_is_not_learned(counts, out):
    images, labels = numbered(counts)
    wnids = [f'n{i}' for i in range(len(counts))]
    left_out = set(wnids[: min(out, len(counts) - 1)])
    data = training.divide(images, labels, wnids, left_out)
    assert data.unseen == bool(left_out)
    assert data.classes == [w for w in wnids if w not in left_out]
    assert torch.equal(ids(data.images), ids(data.images).unique())
    whose = torch.from_numpy(labels)
    assert [data.classes[y] for y in data.labels] == [wnids[y] for y in whose[ids(data.images)]]
    probe = ids(data.probe)  # (C, F + T)
    assert (whose[probe] == whose[probe[:, :1]]).all()
    assert len(probe.unique()) == probe.numel()
    assert len(whose[probe[:, 0]].unique()) == len(left_out or wnids)
    assert 0 < data.tested < probe.shape[1]
    assert not (left_out and set(probe.flatten().tolist()) & set(ids(data.images).tolist()))
    assert len(data.images) == sum(n for w, n in zip(wnids, counts) if w not in left_out)
    with refused('are left out'):
        training.divide(images, labels, wnids, set(wnids))


def test_centroid_accuracy_of_features_that_tell_and_of_features_that_mislead():
    class Corner(torch.nn.Module):
        def features(self, x):
            return x[:, :2, 0, 0]

    probe = torch.zeros(2, 6, 4, 4, 3, dtype=torch.uint8)  # red, then green
    probe[0, :, ..., 0] = probe[1, :, ..., 1] = 255

    def preprocess(x):
        return x.permute(0, 3, 1, 2).float()

    assert training.centroid_accuracy(Corner(), preprocess, probe, 2) == 100
    probe[0, 5] = probe[1, 0]  # one of four tests is wrong
    assert training.centroid_accuracy(Corner(), preprocess, probe, 2) == 75


def test_the_rate_rises_for_an_epoch_then_falls_along_a_cosine(tmp_path):
    args = pretrain.parse_args(['--out', str(tmp_path / 'w')])
    assert (args.input_size, args.epochs, args.batch_size, args.lr) == (42, 20, 128, 0.1)
    rates = [training.learning_rate(step, 4, 3) for step in range(12)]
    assert rates[:5] == [0.25, 0.5, 0.75, 1, 1]
    assert rates[6] == pytest.approx((1 + math.sqrt(0.5)) / 2)
    assert rates[8] == pytest.approx(0.5)
    assert rates[10] == pytest.approx((1 - math.sqrt(0.5)) / 2)
    assert sorted(rates[4:], reverse=True) == rates[4:]


# Batches of commit 72c3e39: means of a batch under fixed weights, which hardly differ between
# processors.
GOLDEN = [
    0.4904917,
    0.4554654,
    0.3894797,
    0.4508389,
    0.463973,
    0.4116085,
    0.4710966,
    0.336437,
    0.3785975,
    0.4164815,
    0.5043241,
    0.500923,
]


def test_compact_batches_are_those_that_made_the_shipped_weights():
    images = torch.randint(
        0, 256, (60, 84, 84, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(7)
    )
    found = []
    for epoch, size in enumerate((42, 32, 84)):
        generator = torch.Generator().manual_seed(3000 + epoch)
        order = torch.randperm(60, generator=generator)
        for rows in order.split(6)[:4]:
            x = training.training_batch(images[rows], size, generator)
            assert x.shape == (6, 3, size, size)
            assert x.min() >= 0
            assert x.max() <= 1
            found.append(
                (x.double().flatten() * torch.linspace(-1, 1, x.numel(), dtype=torch.double).cos())
                .mean()
                .item()
            )
    assert found == pytest.approx(GOLDEN, abs=2e-6)


def test_another_backbone_and_another_seed_give_other_weights(learn, base):
    loaded = weights.load(str(learn(base, backbone='Reduced_ResNet18', width=None)))
    assert (loaded.backbone, loaded.options) == ('reduced-resnet18', {})
    assert not same(learn(base), learn(base, 'seed', seed=1))


@pytest.mark.parametrize(
    'flags, words',
    [
        ({'leave_out': ['none', 'cifar10']}, '--leave_out'),
        ({'leave_out': 'cifar'}, '--leave_out cifar: expected'),
        ({'epochs': 0}, 'epochs'),
        ({'batch_size': 101}, '--batch_size 101: there are 100 images'),
        ({'backbone': 'resnet19'}, '--backbone resnet19'),
        ({'backbone': 'resnet34'}, '--backbone resnet34 has no width'),
        ({'backbone': 'timm', 'width': None}, '--weights timm:NAME'),
        ({'backbone': 'resnet12', 'width': 3}, 'must be even'),
        ({'input_size': 1}, 'cannot take images of 1 pixels'),
        ({'out': ROOT / 'docs'}, 'docs cannot be written'),
        ({'out': '/proc/no/w'}, '/proc/no/w cannot be written'),
        ({'base_path': '/no'}, 'MINIIMAGENET'),
        ({'lr': 1e30}, 'no longer finite'),
    ],
    ids=str,
)
def test_what_a_user_can_get_wrong_is_one_line(learn, base, tmp_path, flags, words):
    with refused(words):
        learn(base, **flags)
    assert not files_below(tmp_path)


def test_help_is_quick_and_names_every_flag(tmp_path):
    code = (
        f'import runpy, sys; sys.path.insert(0, {str(ROOT)!r}); sys.argv = '
        '["pretrain.py", "--help"]\n'
        f'try: runpy.run_path({str(ROOT / "pretrain.py")!r}, run_name="__main__")\n'
        'except SystemExit as end: print(end.code, "torch" in sys.modules, "numpy" in sys.modules)'
    )
    out = python('-c', code, cwd=tmp_path).stdout
    assert out.splitlines()[-1] == '0 False False'
    assert all(f'--{name}' in out for name in ('leave_out', 'epochs', 'width'))
