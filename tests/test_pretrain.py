"""Training psi: on the right classes only, to the same bytes however often it was interrupted."""
import itertools
import runpy

import numpy as np
import pytest
import torch

import pretrain
from backbone import weights
from backbone.resnet18 import ResNet18
from pretrain import SHARED_WITH_CIFAR100
from tests.conftest import ROOT, files_below
from tests.utils.test_safe_pickle import dump

KEPT = ['n00000001', 'n99999999']
LEFT_OUT = ['n02747177', 'n04389033']


def make_split(home, left_out_seed: int = 1):
    """miniImageNet's training pickle with two classes to learn (50 images each) and two that CIFAR-100 also has (200 each)."""
    random, other = np.random.default_rng(0), np.random.default_rng(left_out_seed)
    images, rows = [], {}
    for i, wnid in enumerate([KEPT[1], LEFT_OUT[0], KEPT[0], LEFT_OUT[1]]):
        count, source = (50, random) if wnid in KEPT else (200, other)
        rows[wnid] = list(range(sum(map(len, images)), sum(map(len, images)) + count))
        small = source.integers(0, 150, (count, 21, 21, 3)) + 25 * i
        images.append(small.astype(np.uint8).repeat(4, 1).repeat(4, 2))
    home.mkdir(parents=True)
    dump(home / 'mini-imagenet-cache-train.pkl', {'image_data': np.concatenate(images), 'class_dict': rows})


@pytest.fixture(scope='module')
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp('pretrain')
    make_split(folder / 'MINIIMAGENET')
    return folder


@pytest.fixture
def learn(monkeypatch, tmp_path):
    """learn(base, seed=3): run pretrain.main, with a clock by which every epoch takes a second; returns the file."""
    def run(base, out='psi.safetensors', **flags):
        clock = itertools.count()
        monkeypatch.setattr(pretrain.time, 'time', lambda: next(clock))
        flags = dict(width=4, input_size=16, epochs=1, batch_size=20, base_path=base, out=tmp_path / out) | flags
        pretrain.main([str(word) for name, value in flags.items() for word in (f'--{name}', value)])
        return tmp_path / out
    return run


def test_a_short_run_gives_usable_weights_without_the_shared_classes(learn, base, capsys):
    path = learn(base)
    loaded = weights.load(str(path))
    net = ResNet18(3, width=4)
    loaded.load_into(net)
    assert (loaded.backbone, loaded.options, loaded.input_size) == ('resnet18', dict(width=4), 16)
    assert loaded.info['classes'] == KEPT and set(loaded.info['left_out']) == set(SHARED_WITH_CIFAR100)
    assert len(loaded.info['data_digest']) == 64 and loaded.info['recipe']['epochs'] == 1
    assert 0 <= loaded.info['unseen_ncc_accuracy'] <= 100 and len(loaded.info['curve']) == 1
    assert torch.isfinite(net.eval().features(torch.rand(2, 3, 16, 16))).all()
    assert 'epoch 1' in capsys.readouterr().out
    assert files_below(path.parent) == [path]                   # no checkpoint is left


def test_images_of_the_shared_classes_have_no_part_in_the_weights(learn, base, tmp_path):
    make_split(tmp_path / 'other' / 'MINIIMAGENET', left_out_seed=2)
    first, second = (weights.load(str(learn(where, f'{i}.safetensors'))) for i, where in enumerate((base, tmp_path / 'other')))
    assert first.tensors and all(torch.equal(t, second.tensors[name]) for name, t in first.tensors.items())
    assert first.info['data_digest'] == second.info['data_digest']


def test_another_seed_gives_other_weights(learn, base):
    first, second = (weights.load(str(learn(base, f'{seed}.safetensors', seed=seed))) for seed in (0, 1))
    assert not torch.equal(first.tensors['conv1.weight'], second.tensors['conv1.weight'])


def interrupt_after(monkeypatch, batches: int):
    """Let pretrain make this many training batches, then raise KeyboardInterrupt."""
    left, original = itertools.count(batches, -1), pretrain.training_batch

    def batch(*args):
        if next(left) <= 0:
            raise KeyboardInterrupt
        return original(*args)
    monkeypatch.setattr(pretrain, 'training_batch', batch)


def test_a_run_that_was_killed_and_resumed_gives_the_same_file(learn, base, tmp_path, monkeypatch, capsys):
    whole = learn(base, epochs=2).read_bytes()
    with monkeypatch.context() as killed:
        interrupt_after(killed, 5 + 2)                          # five batches an epoch: in the middle of the second
        with pytest.raises(KeyboardInterrupt):
            learn(base, 'resumed.safetensors', epochs=2)
    assert [p.name for p in files_below(tmp_path) if p.name.startswith('resumed')] == ['resumed.safetensors.checkpoint']
    capsys.readouterr()
    assert learn(base, 'resumed.safetensors', epochs=2).read_bytes() == whole
    out = capsys.readouterr().out
    assert 'epoch 2' in out and 'epoch 1' not in out
    assert {p.name for p in files_below(tmp_path)} == {'psi.safetensors', 'resumed.safetensors'}


@pytest.mark.parametrize('change', [dict(lr=0.05), dict(width=8), dict(epochs=3), dict(seed=1)], ids=str)
def test_a_checkpoint_of_other_settings_is_not_continued(learn, base, tmp_path, monkeypatch, change):
    with monkeypatch.context() as killed:
        interrupt_after(killed, 5)
        with pytest.raises(KeyboardInterrupt):
            learn(base, epochs=2)
    checkpoint = tmp_path / 'psi.safetensors.checkpoint'
    before = checkpoint.read_bytes()
    with pytest.raises(SystemExit, match='other settings: delete it'):
        learn(base, **dict(epochs=2) | change)
    assert checkpoint.read_bytes() == before and not (tmp_path / 'psi.safetensors').exists()


def test_without_the_data_the_script_ends_in_one_line(monkeypatch, tmp_path, capfd):
    monkeypatch.setattr('sys.argv', ['pretrain.py', '--out', str(tmp_path / 'w'), '--base_path', str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / 'pretrain.py'), run_name='__main__')
    line = f'{end.value.code}{capfd.readouterr().err}'          # sys.exit(text) prints it as the interpreter ends
    assert end.value.code and 'MINIIMAGENET' in line
    assert not files_below(tmp_path)
