"""Checkpoints of others: made here with their names and layouts, read, and compared."""

import argparse
import pickle
import re
import sys
from collections import OrderedDict, namedtuple
from itertools import accumulate
from types import ModuleType

import numpy as np
import pytest
import safetensors.torch
import torch

from backbone import checkpoints, weight_files, weights
from tests.backbone.conftest import build, pictures, small
from tests.conftest import refused


def state_of(name: str, shortcut: str | None = None, **options) -> OrderedDict:
    """A small network's tensors, counters included and its head not."""
    state = small(name, **options).state_dict()
    return OrderedDict(
        (re.sub('downsample|shortcut', shortcut or r'\g<0>', key), t.clone())
        for key, t in state.items()
        if not key.startswith('classifier')
    )


def haiku(width: int = 2) -> tuple:
    """(parameters, state) of BYOL's ResNet50, with the names and shapes that Haiku gives them."""
    random = np.random.default_rng(0)
    params = {}
    state = {}

    def kernel_of(*shape):
        return random.normal(size=shape).astype(np.float32)

    def norm(path, channels):
        values = random.uniform(0.5, 1.5, (4, 1, 1, 1, channels)).astype(np.float32)
        params[path] = {'scale': values[0], 'offset': values[1]}
        for which, average in (('mean', values[2]), ('var', values[3])):
            others = {'hidden': average * 0.9, 'counter': np.array(5, np.int32)}
            state[f'{path}/~/{which}_ema'] = {'average': average, **others}

    top = 'res_net50/~/'
    params[f'{top}initial_conv'] = {'w': kernel_of(7, 7, 3, width)}
    norm(f'{top}initial_batchnorm', width)
    inputs = width
    for group, count in enumerate((3, 4, 6, 3)):
        channels = width * 2**group
        for k in range(count):
            path = f'{top}block_group_{group}/~/block_{k}/~/'
            if k == 0:
                params[f'{path}shortcut_conv'] = {'w': kernel_of(1, 1, inputs, 4 * channels)}
                norm(f'{path}shortcut_batchnorm', 4 * channels)
            for i, (kernel, outputs) in enumerate(
                ((1, channels), (3, channels), (1, 4 * channels))
            ):
                params[f'{path}conv_{i}'] = {'w': kernel_of(kernel, kernel, inputs, outputs)}
                norm(f'{path}batchnorm_{i}', outputs)
                inputs = outputs
    for head in ('projector', 'predictor'):
        params[f'{head}/linear'] = {'w': kernel_of(3, 2), 'b': kernel_of(2)}
        norm(f'{head}/batch_norm', 2)
    params['classifier'] = {'w': kernel_of(8, 4), 'b': kernel_of(4)}
    return params, state


def summary(loaded: weights.Weights) -> tuple:
    return loaded.backbone, loaded.options, loaded.input_size


def network(loaded: weights.Weights):
    """The network that the file is said to be for, with its weights."""
    net = build(loaded.backbone, **loaded.options)
    loaded.load_into(net)
    return net.eval()


def check(loaded: weights.Weights, state: dict) -> None:
    """All tensors are there, under the names of the network, in float32, and fit it."""
    word = 'downsample' if loaded.backbone in ('resnet18-md', 'resnet12') else 'shortcut'
    expected = {
        re.sub('downsample|shortcut', word, name): t.float()
        for name, t in state.items()
        if not name.endswith('num_batches_tracked')
    }
    torch.testing.assert_close(loaded.tensors, expected, rtol=0, atol=0)
    network(loaded)


# -- one file of each kind


def heads(prefix: str) -> dict:
    return {f'{prefix}.{i}.weight': torch.ones(3, 2) for i in range(8)}


def url_content(width: int = 4) -> dict:
    state = state_of('resnet18-md', width=width) | heads('cls_fn')
    return {
        'epoch': 5,
        'args': {'model.name': 'url', 'train.lr': 0.03},
        'state_dict': state,
        'best_val_acc': np.float64(71.5),
        'optimizer': {'state': {0: {'momentum_buffer': torch.ones(2)}}},
        'epoch_loss': np.array([1.0, 0.5]),
        'adaptors': heads('conv1'),
    }


def rfs_content(width: int = 2, prefix: str = '') -> dict:
    state = {prefix + name: t for name, t in state_of('resnet12', width=width).items()}
    state['classifier.weight'] = torch.ones(64, 10 * width)
    state['classifier.bias'] = torch.ones(64)
    return {'opt': argparse.Namespace(model='resnet12', lr_decay_epochs=[60, 80]), 'model': state}


def mammoth_content(width: int = 4) -> dict:
    state = state_of('resnet18', 'shortcut', num_filters=width)
    state = {f'net.{name}': t for name, t in state.items()}
    state['net.classifier.weight'] = torch.ones(10, 8 * width)
    state['class_means'] = torch.ones(10, 3)
    state['old_net.conv1.weight'] = torch.ones(2)
    return {
        'model': state,
        'scheduler': None,
        'results': [[1.0], [2.0], {}],
        'args': argparse.Namespace(backbone='resnet18', dataset='seq-cifar100'),
        'buffer': {'examples': torch.ones(2, 3)},
    }


def byol_content(records=None) -> dict:
    params, state = haiku()
    experiment = params, params, state, state, ()
    if records is not None:
        mapping = records['Mapping'](params)
        experiment = records['State'](params, mapping, state, state, (records['Lars']({}),))
    rng = np.array([1, 2], np.uint32)
    return {'experiment_state': experiment, 'step': np.int64(300000), 'rng': rng}


def saved(path, content) -> str:
    """Written as its authors did: BYOL's with pickle, the others with torch."""
    if isinstance(content, dict) and 'experiment_state' in content:
        path.write_bytes(pickle.dumps(content, 2))
    else:
        torch.save(content, path)
    return str(path)


def test_url_and_its_stem_padding(tmp_path, parse):
    path = saved(tmp_path / 'model_best.pth.tar', url_content())
    loaded = weights.load(path)
    assert summary(loaded) == ('resnet18-md', {'width': 4}, 84)
    assert loaded.mean == loaded.std == (0.5,) * 3
    check(loaded, state_of('resnet18-md'))
    about = weights.load(path, tensors=False)
    assert about.tensors == {}
    assert (about.options, about.digest) == (loaded.options, loaded.digest)
    args = parse('sgd', '--lr 0.1 --stem_padding 2 --weights', path)
    assert (args.backbone, args.width, args.stem_padding) == ('resnet18-md', 4, 2)
    assert args.weights == path


@pytest.mark.parametrize('prefix', ['', 'module.backbone.'])
def test_rfs_with_prefixes(tmp_path, prefix):
    loaded = weights.load(saved(tmp_path / 'last.pth', rfs_content(prefix=prefix)))
    assert summary(loaded) == ('resnet12', {'width': 2}, 84)
    np.testing.assert_allclose(
        np.array(loaded.mean) * 255, [120.39586422, 115.59361427, 104.54012653]
    )
    check(loaded, state_of('resnet12'))


@pytest.mark.parametrize('name, shortcut', [('resnet18', 'shortcut'), ('resnet34', 'downsample')])
def test_cifar_networks(tmp_path, name, shortcut):
    state = state_of(name, shortcut, num_filters=4)
    loaded = weights.load(saved(tmp_path / 'w.pt', state))
    assert summary(loaded) == (name, {'num_filters': 4}, 32)
    check(loaded, state)


def test_mammoth(tmp_path):
    loaded = weights.load(saved(tmp_path / 'er.pt', mammoth_content()))
    assert summary(loaded) == ('resnet18', {'num_filters': 4}, 32)
    check(loaded, state_of('resnet18'))


def test_a_buffer_that_mammoth_pickled_is_left_alone(tmp_path, monkeypatch):
    """Its class is never called: a shell of ours takes its place."""
    from utils.buffer import Buffer

    buffer = Buffer.__new__(Buffer)
    buffer.__dict__.update(examples=torch.ones(2), num_seen_examples=np.int64(7))
    content = mammoth_content() | {'buffer': buffer}
    path = saved(tmp_path / 'old', content)
    monkeypatch.setattr(Buffer, '__setstate__', lambda *a: pytest.fail('called'), raising=False)
    assert weights.load(path).backbone == 'resnet18'


@pytest.fixture
def records(monkeypatch):
    """Classes of the packages that BYOL's file names, importable while it is written and gone when
    it is read.
    """
    places = {
        'State': ('byol.byol_experiment', '_ByolExperimentState'),
        'Lars': ('byol.utils.optimizers', 'LarsState'),
        'Mapping': ('haiku._src.data_structures', 'FlatMapping'),
    }
    fields = 'online_params target_params online_state target_state opt_state'
    made = {
        'State': namedtuple('_ByolExperimentState', fields),
        'Lars': namedtuple('LarsState', 'momentum'),
        'Mapping': type('FlatMapping', (dict,), {'__reduce__': lambda x: (type(x), (dict(x),))}),
    }
    with monkeypatch.context() as importable:
        for key, (module, name) in places.items():
            made[key].__module__ = module
            for place in accumulate(module.split('.'), '{}.{}'.format):
                importable.setitem(sys.modules, place, ModuleType(place))
            setattr(sys.modules[module], name, made[key])
        yield made


def test_byol(tmp_path, records, monkeypatch):
    path = saved(tmp_path / 'pretrain_res50x1.pkl', byol_content(records))
    for name in [name for name in sys.modules if name.partition('.')[0] in ('byol', 'haiku')]:
        monkeypatch.delitem(sys.modules, name)
    assert b'_ByolExperimentState' in (tmp_path / 'pretrain_res50x1.pkl').read_bytes()
    loaded = weights.load(path)
    params, state = haiku()
    assert summary(loaded) == ('resnet50-byol', {'width': 2}, 224)
    assert (loaded.mean, loaded.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    torso = 'res_net50/~/block_group_2/~/block_1/~/'
    for name, array in {
        'conv1.weight': params['res_net50/~/initial_conv']['w'],
        'layer3.1.conv2.weight': params[f'{torso}conv_1']['w'],
        'layer3.1.bn2.bias': params[f'{torso}batchnorm_1']['offset'],
        'layer3.1.bn3.weight': params[f'{torso}batchnorm_2']['scale'],
        'layer3.1.bn1.running_var': state[f'{torso}batchnorm_0/~/var_ema']['average'],
        'layer2.0.downsample.0.weight': params[
            'res_net50/~/block_group_1/~/block_0/~/shortcut_conv'
        ]['w'],
        'layer2.0.downsample.1.running_mean': state[
            'res_net50/~/block_group_1/~/block_0/~/shortcut_batchnorm/~/mean_ema'
        ]['average'],
    }.items():
        assert torch.equal(
            loaded.tensors[name],
            torch.from_numpy(array).permute(3, 2, 0, 1).reshape(loaded.tensors[name].shape),
        )
    assert torch.isfinite(network(loaded).features(pictures(2, 24))).all()


@pytest.mark.parametrize('metadata, tensors', [(None, True), ({'format': 'pt'}, False)])
def test_a_bare_state_dict_in_a_safetensors_file(tmp_path, metadata, tensors):
    halves = {
        name: t.half() if t.is_floating_point() else t
        for name, t in state_of('resnet18-md').items()
    }
    safetensors.torch.save_file(halves, tmp_path / 'w', metadata)
    loaded = weights.load(str(tmp_path / 'w'), tensors)
    assert summary(loaded) == ('resnet18-md', {'width': 4}, 84)
    assert len(loaded.tensors) == (100 if tensors else 0)
    assert {t.dtype for t in loaded.tensors.values()} <= {torch.float32}


def test_a_file_that_changes_is_read_again(tmp_path):
    path = saved(tmp_path / 'w', url_content(4))
    assert weights.load(path).options == {'width': 4}
    weights.load(path).tensors.clear()  # what is given out is not what is remembered
    weights.load(path, tensors=False).options.clear()
    first = weights.load(path)
    assert len(first.tensors) == 100
    assert first.options == {'width': 4}
    saved(tmp_path / 'w', url_content(6))
    assert weights.load(path).options == {'width': 6}
    assert weights.load(path).digest != first.digest


# -- what does not fit


def without(*names) -> dict:
    state = state_of('resnet18-md')
    return {name: t for name, t in state.items() if name not in names}


def spoiled(**tensors) -> dict:
    """A network of which some tensors, whose names have underscores for dots, are others."""
    return state_of('resnet18-md') | {name.replace('_', '.'): t for name, t in tensors.items()}


def spoiled_byol(module: str, leaves) -> dict:
    params, state = haiku()
    params[f'res_net50/~/block_group_2/~/block_1/~/{module}'] = leaves
    return {'experiment_state': (params, {}, state, {}, ()), 'step': 1}


MANY = [f'layer{i}.0.bn2.weight' for i in (1, 2, 3, 4)]
UNFIT = {
    'missing': (without(MANY[2]), ['layer3.0.bn2.weight (missing) for (']),
    'many': (without(*MANY), ['layer1.0.bn2.weight (missing)', 'and 1 more']),
    'extra': (spoiled(layer3_alpha=torch.ones(2)), ['layer3.alpha (2,) for (unknown)']),
    'misshaped': (spoiled(bn1_bias=torch.ones(99)), ['bn1.bias (99,) for (']),
    'not finite': (spoiled(bn1_bias=torch.full((4,), torch.nan)), ['bn1.bias', 'not finite']),
    'whole numbers': (spoiled(bn1_bias=torch.ones(4).long()), ['bn1.bias', 'real numbers']),
    'no tensor': (spoiled(bn1_bias='text'), ['bn1.bias', 'tensor']),
    'other stem': (
        spoiled(conv1_weight=torch.ones(4, 3, 9, 9)),
        ['conv1 of 9 px, blocks 2-2-2-2 of 2 convolutions'],
    ),
    'a number for a name': ({3: torch.ones(1), 'net.x': torch.ones(1)}, ['its tensors', 'x, ']),
    'nested': ({'weights': {'a': torch.ones(2)}, 'epoch': 3}, ['weights', 'no ordinary tensor']),
    'empty': ({}, ['no backbone']),
    'no dict': (torch.ones(3), ['a Tensor']),
    'sparse': ({'conv1.weight': torch.ones(3).to_sparse()}, ['no ordinary tensor']),
    'no offset of BYOL': (spoiled_byol('batchnorm_1', {'scale': 1}), ['not a BYOL checkpoint']),
    'shape of BYOL': (
        spoiled_byol('conv_1', {'w': np.ones((3, 3, 8, 7), np.float32)}),
        ['layer3.1.conv2.weight (7, 8, 3, 3) for (8, 8, 3, 3)'],
    ),
    'no dict of BYOL': (spoiled_byol('conv_0', 5), ['not a BYOL checkpoint']),
    'nothing of BYOL': ({'experiment_state': ({},) * 5}, ['initial_conv/w']),
}


@pytest.mark.parametrize('kind', UNFIT)
@pytest.mark.filterwarnings('ignore:Validating sparse')
def test_what_fits_no_network_is_refused_with_the_reason(tmp_path, kind):
    content, words = UNFIT[kind]
    path = saved(tmp_path / 'w', content)
    for tensors in (True, False):
        with refused(f'--weights {path}', *words):
            weights.load(path, tensors)


def test_a_pickle_that_holds_no_network(tmp_path):
    (tmp_path / 'w').write_bytes(pickle.dumps([1, 2], 2))
    with refused(f'--weights {tmp_path / "w"}', 'a list'):
        weights.load(str(tmp_path / 'w'))


# -- files by name


@pytest.mark.parametrize(
    'name, words',
    [
        ('url-resnet18', ['1Dv8TX6iQ-BE2NMpfd0sQmH2q4mShmo1A', '45 MB', 'url-resnet18.pth.tar']),
        ('byol-resnet50', ['deepmind-byol/', '570 MB', 'CC BY-NC', 'pretrain_res50x1.pkl']),
        ('url-resnet', ['did you mean url-resnet18']),
    ],
)
def test_what_must_be_fetched_says_from_where_to_where_and_how_much(
    tmp_path, monkeypatch, name, words
):
    monkeypatch.setattr(weight_files, 'SHIPPED', tmp_path / 'weights')
    with refused(f'--weights {name}:', *words):
        weights.load(name)


@pytest.mark.parametrize(
    'name, content, backbone',
    [
        ('url-resnet18', url_content, 'resnet18-md'),
        ('rfs-resnet12', rfs_content, 'resnet12'),
        ('byol-resnet50', byol_content, 'resnet50-byol'),
    ],
)
def test_what_has_been_fetched_is_found_by_name(tmp_path, monkeypatch, name, content, backbone):
    monkeypatch.setattr(weight_files, 'SHIPPED', tmp_path)
    saved(tmp_path / weight_files.PUBLISHED[name][0], content())
    loaded = weights.load(name)
    assert loaded.name == name
    assert loaded.backbone == backbone
    # what seq-miniimg refuses
    assert loaded.info.get('saw') == ('ImageNet' if name == 'byol-resnet50' else None)
    network(loaded)


def test_a_safetensors_file_may_begin_like_a_pickle(tmp_path):
    for size in range(300):
        safetensors.torch.save_file({'a' * (size + 1): torch.ones(1)}, tmp_path / 'w')
        if (tmp_path / 'w').read_bytes()[0] == 0x80:
            break
    else:
        pytest.fail('no header of such a length')
    assert not checkpoints.is_checkpoint(tmp_path / 'w')
