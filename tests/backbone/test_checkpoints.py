"""Checkpoints of others: made here with their names and layouts, read, and compared with numpy stage by stage."""
import argparse
import hashlib
import pickle
import sys
from collections import OrderedDict, namedtuple
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import safetensors.torch
import torch
from torchvision import models

from backbone import checkpoints, weight_files, weights
from tests.backbone.conftest import build, pictures, settle, small
from tests.bench.test_safe_pickle import Calls
from tests.conftest import refused

# -- what the files hold, written out ----------------------------------------------------------------------------------


class Random:
    """Seeded arrays for convolutions (height, width, in, out) and batch norms."""

    def __init__(self, seed: int = 0):
        self.random = np.random.default_rng(seed)

    def conv(self, kernel, inputs, outputs):
        return (self.random.normal(size=(kernel, kernel, inputs, outputs)) / np.sqrt(kernel * kernel * inputs)).astype(np.float32)

    def norm(self, channels):
        """scale, offset, mean, variance."""
        draw = self.random
        return [a.astype(np.float32) for a in (draw.uniform(0.5, 1.5, channels), draw.normal(0, 0.2, channels),
                                               draw.normal(0, 0.2, channels), draw.uniform(0.5, 2, channels))]


def torch_layout(modules: dict) -> OrderedDict:
    """{module name: convolution or batch norm of `Random`} -> a state dict of torch's, counters included."""
    state = OrderedDict()
    for name, value in modules.items():
        if isinstance(value, list):
            for leaf, array in zip(('weight', 'bias', 'running_mean', 'running_var'), value):
                state[f'{name}.{leaf}'] = torch.from_numpy(array.copy())
            state[f'{name}.num_batches_tracked'] = torch.tensor(7)
        else:
            state[f'{name}.weight'] = torch.from_numpy(value.transpose(3, 2, 0, 1).copy())
    return state


def basic(kernel: int, width: int, blocks: tuple, shortcut: str = 'downsample') -> dict:
    """Modules of a ResNet of basic blocks."""
    draw = Random()
    modules = {'conv1': draw.conv(kernel, 3, width), 'bn1': draw.norm(width)}
    inputs = width
    for stage, count in enumerate(blocks):
        for k in range(count):
            name, outputs = f'layer{stage + 1}.{k}', width * 2 ** stage
            modules |= {f'{name}.conv1': draw.conv(3, inputs, outputs), f'{name}.bn1': draw.norm(outputs),
                        f'{name}.conv2': draw.conv(3, outputs, outputs), f'{name}.bn2': draw.norm(outputs)}
            if inputs != outputs:
                modules |= {f'{name}.{shortcut}.0': draw.conv(1, inputs, outputs), f'{name}.{shortcut}.1': draw.norm(outputs)}
            inputs = outputs
    return modules


def twelve(width: int) -> dict:
    """Modules of RFS' ResNet12."""
    draw, modules, inputs = Random(), {}, 3
    for stage, outputs in enumerate((width, width * 5 // 2, width * 5, width * 10), 1):
        for i, channels in enumerate((inputs, outputs, outputs), 1):
            modules |= {f'layer{stage}.0.conv{i}': draw.conv(3, channels, outputs), f'layer{stage}.0.bn{i}': draw.norm(outputs)}
        modules |= {f'layer{stage}.0.downsample.0': draw.conv(1, inputs, outputs), f'layer{stage}.0.downsample.1': draw.norm(outputs)}
        inputs = outputs
    return modules


def haiku(width: int = 2) -> tuple:
    """(parameters, state) of BYOL's ResNet50, with the names and shapes that Haiku gives them."""
    draw, params, state = Random(), {}, {}

    def norm(path, channels):
        scale, offset, mean, variance = (a.reshape(1, 1, 1, -1) for a in draw.norm(channels))
        params[path] = dict(scale=scale, offset=offset)
        for which, average in (('mean', mean), ('var', variance)):
            state[f'{path}/~/{which}_ema'] = dict(hidden=average * 0.9, average=average, counter=np.array(5, np.int32))

    top = 'res_net50/~/'
    params[f'{top}initial_conv'] = dict(w=draw.conv(7, 3, width))
    norm(f'{top}initial_batchnorm', width)
    inputs = width
    for group, count in enumerate((3, 4, 6, 3)):
        channels = width * 2 ** group
        for k in range(count):
            path = f'{top}block_group_{group}/~/block_{k}/~/'
            if k == 0:
                params[f'{path}shortcut_conv'] = dict(w=draw.conv(1, inputs, 4 * channels))
                norm(f'{path}shortcut_batchnorm', 4 * channels)
            for i, (kernel, before, after) in enumerate(((1, inputs, channels), (3, channels, channels), (1, channels, 4 * channels))):
                params[f'{path}conv_{i}'] = dict(w=draw.conv(kernel, before, after))
                norm(f'{path}batchnorm_{i}', after)
            inputs = 4 * channels
    for head in ('projector', 'predictor'):
        params[f'{head}/linear'] = dict(w=np.ones((3, 2), np.float32), b=np.ones(2, np.float32))
        params[f'{head}/batch_norm'] = dict(scale=np.ones((1, 2), np.float32), offset=np.ones((1, 2), np.float32))
        state[f'{head}/batch_norm/~/mean_ema'] = dict(hidden=np.ones(2), average=np.ones(2), counter=np.array(5, np.int32))
    params['classifier'] = dict(w=np.ones((8, 4), np.float32), b=np.ones(4, np.float32))
    return params, state


# -- networks in numpy, (batch, height, width, channels) ---------------------------------------------------------------

def window(x, kernel: int, stride: int, pad, fill: float = 0.0):
    """(B, H', W', C, kernel, kernel); `pad`: both sides alike, or 'SAME' as TensorFlow and JAX define it."""
    if pad == 'SAME':
        total = [max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in x.shape[1:3]]
        amounts = [(t // 2, t - t // 2) for t in total]
    else:
        amounts = [(pad, pad)] * 2
    x = np.pad(x, [(0, 0), *amounts, (0, 0)], constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(1, 2))[:, ::stride, ::stride]


def convolve(x, w, stride: int = 1, pad=0):
    return np.einsum('bhwckl,klco->bhwo', window(x, len(w), stride, pad), w.astype(float), optimize=True)


def normalise(x, norm):
    scale, offset, mean, variance = (np.asarray(a, float).reshape(-1) for a in norm)
    return (x - mean) / np.sqrt(variance + 1e-5) * scale + offset


def basic_maps(modules: dict, x, stem: tuple, shortcut: str = 'downsample') -> list:
    """Maps after the stem (stride, padding) and each stage."""
    maps = [np.maximum(normalise(convolve(x, modules['conv1'], *stem), modules['bn1']), 0)]
    blocks = sorted({name.rpartition('.')[0] for name in modules if name.endswith('.conv2')})
    for name in blocks:
        stride = 2 if name.endswith('.0') and name != 'layer1.0' else 1
        before = maps[-1]
        out = np.maximum(normalise(convolve(before, modules[f'{name}.conv1'], stride, 1), modules[f'{name}.bn1']), 0)
        out = normalise(convolve(out, modules[f'{name}.conv2'], 1, 1), modules[f'{name}.bn2'])
        if f'{name}.{shortcut}.0' in modules:
            before = normalise(convolve(before, modules[f'{name}.{shortcut}.0'], stride), modules[f'{name}.{shortcut}.1'])
        if name.endswith('.0'):
            maps.append(None)
        maps[-1] = np.maximum(out + before, 0)
    return maps


def haiku_maps(params: dict, state: dict, x) -> list:
    def layer(x, path, index, stride=1):
        norm = f'{path}batchnorm{index}'
        averages = [state[f'{norm}/~/{which}_ema']['average'] for which in ('mean', 'var')]
        return normalise(convolve(x, params[f'{path}conv{index}']['w'], stride, 'SAME'),
                         [params[norm]['scale'], params[norm]['offset'], *averages])

    x = np.maximum(layer(x, 'res_net50/~/initial_', '', 2), 0)
    maps = [window(x, 3, 2, 'SAME', -np.inf).max(axis=(-1, -2))]
    for group, count in enumerate((3, 4, 6, 3)):
        x = maps[-1]
        for k in range(count):
            path, stride = f'res_net50/~/block_group_{group}/~/block_{k}/~/', 2 if group and not k else 1
            before = layer(x, f'{path}shortcut_', '', stride) if not k else x
            out = np.maximum(layer(x, path, '_0'), 0)
            out = np.maximum(layer(out, path, '_1', stride), 0)
            x = np.maximum(layer(out, path, '_2') + before, 0)
        maps.append(x)
    return maps


def network(loaded: weights.Weights):
    """The network that the file is said to be for, with its weights."""
    net = build(loaded.backbone, **loaded.options)
    loaded.load_into(net)
    return net.eval()


@torch.no_grad()
def check_maps(net, expected) -> None:
    """`expected(x)`, in numpy, gives the maps of `net`."""
    x = pictures(2, 24, torch.float64)
    for ours, theirs in zip(net.double().maps(x), expected(x.permute(0, 2, 3, 1).numpy()), strict=True):
        np.testing.assert_allclose(ours.permute(0, 2, 3, 1), theirs, rtol=1e-8, atol=1e-10)


# -- one file of each kind ---------------------------------------------------------------------------------------------

def heads(prefix: str, count: int = 8) -> dict:
    return {f'{prefix}.{i}.{leaf}': torch.ones(3, 2) for i in range(count) for leaf in ('weight', 'bias')}


def url_content(width: int = 4) -> dict:
    state = torch_layout(basic(5, width, (2, 2, 2, 2))) | heads('cls_fn')
    return dict(epoch=5, args={'model.name': 'url', 'train.lr': 0.03}, state_dict=state, best_val_acc=np.float64(71.5),
                best_val_loss=np.float32(0.5), optimizer=dict(state={0: dict(momentum_buffer=torch.ones(2))}, param_groups=[dict(lr=0.03)]),
                epoch_loss=np.array([1.0, 0.5]), adaptors=heads('conv1'), optimizer_adaptor=dict(state={}))


def rfs_content(width: int = 2) -> dict:
    state = torch_layout(twelve(width)) | {'classifier.weight': torch.ones(64, 10 * width), 'classifier.bias': torch.ones(64)}
    return dict(opt=argparse.Namespace(model='resnet12', lr_decay_epochs=[60, 80]), model=state)


def mammoth_content(width: int = 4, args=argparse.Namespace, **more) -> dict:
    state = torch_layout(basic(3, width, (2, 2, 2, 2), 'shortcut')) | {'classifier.weight': torch.ones(10, 8 * width)}
    state = {f'net.{name}': t for name, t in state.items()} | {'class_means': torch.ones(10, 3), 'old_net.conv1.weight': torch.ones(2)}
    return dict(model=state, optimizer=dict(state={}), scheduler=None, args=args(backbone='resnet18', dataset='seq-cifar100'),
                results=[[1.0], [2.0], {}], buffer=dict(examples=torch.ones(2, 3)), **more)


def byol_content(records=None) -> dict:
    params, state = haiku()
    if records is None:
        experiment = (params, params, state, state, ())
    else:
        experiment = records['State'](params, records['Mapping'](params), state, state, (records['Lars']({}),))
    return dict(experiment_state=experiment, step=np.int64(300000), rng=np.array([1, 2], np.uint32))


def saved(path, content) -> str:
    """Written as its authors did: BYOL's with pickle, the others with torch."""
    if 'experiment_state' in content:
        path.write_bytes(pickle.dumps(content, 2))
    else:
        torch.save(content, path)
    return str(path)


def test_url(tmp_path):
    path = saved(tmp_path / 'model_best.pth.tar', url_content())
    loaded, modules = weights.load(path), basic(5, 4, (2, 2, 2, 2))
    assert (loaded.backbone, loaded.options, loaded.input_size) == ('resnet18-md', dict(width=4), 84)
    assert loaded.mean == loaded.std == (0.5,) * 3
    assert loaded.digest == hashlib.sha256((tmp_path / 'model_best.pth.tar').read_bytes()).hexdigest()
    assert loaded.info['ignored'] == {'classifier': 16, 'batch counter': 20, 'beside the network': [
        'adaptors', 'args', 'best_val_acc', 'best_val_loss', 'epoch', 'epoch_loss', 'optimizer', 'optimizer_adaptor']}
    assert len(loaded.tensors) + 20 == 120
    check_maps(network(loaded), lambda x: basic_maps(modules, x, (2, 1)))
    about = weights.load(path, tensors=False)
    assert about.tensors == {} and (about.options, about.digest) == (loaded.options, loaded.digest)


@pytest.mark.parametrize('words, padding', [([], 1), (['--stem_padding', 2], 2)])
def test_the_stem_padding_of_url_is_an_option(tmp_path, parse, words, padding):
    path = saved(tmp_path / 'url', url_content())
    args = parse('sgd', '--weights', path, '--lr', 0.1, *words)
    assert (args.backbone, args.width, args.stem_padding, args.weights) == ('resnet18-md', 4, padding, path)
    loaded, modules = weights.load(path), basic(5, 4, (2, 2, 2, 2))
    loaded.options = loaded.options | dict(stem_padding=padding)
    check_maps(network(loaded), lambda x: basic_maps(modules, x, (2, padding)))


@pytest.mark.parametrize('prefix', ['', 'backbone.', 'module.', 'module.backbone.'])
def test_rfs_with_prefixes(tmp_path, prefix):
    content = rfs_content()
    content['model'] = {name if name.startswith('classifier') else prefix + name: t for name, t in content['model'].items()}
    loaded = weights.load(saved(tmp_path / 'last.pth', content))
    assert (loaded.backbone, loaded.options, loaded.input_size) == ('resnet12', dict(width=2), 84)
    np.testing.assert_allclose(np.array(loaded.mean) * 255, [120.39586422, 115.59361427, 104.54012653])
    np.testing.assert_allclose(np.array(loaded.std) * 255, [70.68188272, 68.27635443, 72.54505529])
    assert loaded.info['ignored'] == {'classifier': 2, 'batch counter': 16, 'beside the network': ['opt']}
    assert network(loaded).state_dict().keys() - loaded.tensors.keys() == {'classifier.weight', 'classifier.bias', *(
        name for name in network(loaded).state_dict() if name.endswith('num_batches_tracked'))}
    assert all(torch.equal(t, rfs_content()['model'][name]) for name, t in loaded.tensors.items())


@pytest.mark.parametrize('blocks, name', [((2, 2, 2, 2), 'resnet18'), ((3, 4, 6, 3), 'resnet34'), ((5, 5, 5), 'resnet32')])
@pytest.mark.parametrize('shortcut', ['shortcut', 'downsample'])
def test_cifar_networks(tmp_path, blocks, name, shortcut):
    modules = basic(3, 4, blocks, shortcut)
    loaded = weights.load(saved(tmp_path / 'w.pt', torch_layout(modules)))
    assert (loaded.backbone, loaded.options, loaded.input_size) == (name, dict(num_filters=4), 32)
    check_maps(network(loaded), lambda x: basic_maps(modules, x, (1, 1), shortcut))


@pytest.mark.parametrize('args', [dict, argparse.Namespace])
def test_mammoth(tmp_path, args):
    loaded = weights.load(saved(tmp_path / 'er.pt', mammoth_content(args=args)))
    modules = basic(3, 4, (2, 2, 2, 2), 'shortcut')
    assert (loaded.backbone, loaded.options, loaded.input_size) == ('resnet18', dict(num_filters=4), 32)
    assert (loaded.mean, loaded.std) == ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
    assert loaded.info == dict(format='Mammoth checkpoint', ignored={
        'of the method': 2, 'classifier': 1, 'batch counter': 20,
        'beside the network': ['args', 'buffer', 'optimizer', 'results', 'scheduler']})
    check_maps(network(loaded), lambda x: basic_maps(modules, x, (1, 1), 'shortcut'))


def test_a_buffer_that_mammoth_pickled_is_left_alone(tmp_path, monkeypatch):
    """Its class is never called: a shell of ours takes its place."""
    from utils.buffer import Buffer
    buffer = Buffer.__new__(Buffer)
    buffer.__dict__.update(examples=torch.ones(2), num_seen_examples=np.int64(7))
    content = mammoth_content() | dict(buffer=buffer)
    path = saved(tmp_path / 'old', content)
    monkeypatch.setattr(Buffer, '__setstate__', lambda *a: pytest.fail('called'), raising=False)
    assert weights.load(path).backbone == 'resnet18'


def test_what_tensors_cannot_show_comes_from_the_arguments_of_the_run(tmp_path):
    def load(**args):
        state = {f'net.{name}': t for name, t in small('resnet18-md', stem_padding=2).state_dict().items()}
        return weights.load(saved(tmp_path / 'w', dict(model=state, args=args)))
    assert load(stem_padding=2, dataset='seq-tinyimg').options == dict(width=4, stem_padding=2)
    assert load(stem_padding=2, dataset='seq-tinyimg').input_size == 64
    odd = load(stem_padding='2', dataset=['seq-tinyimg'], backbone=None)
    assert odd.options == dict(width=4) and odd.input_size == 84


def test_byols_tensors_have_torchvisions_names_so_the_arguments_decide(tmp_path):
    with torch.device('meta'):
        shapes = {name: t.shape for name, t in models.resnet50(num_classes=2).state_dict().items()}
    state = {f'net.{name}': torch.zeros(()).expand(shape) for name, shape in shapes.items()}
    loads = [weights.load(saved(tmp_path / 'w', dict(model=state, args=args)))
             for args in (dict(backbone='resnet50'), dict(backbone='resnet50-byol', stride_on='1x1'))]
    assert [(w.backbone, w.options) for w in loads] == [('resnet50-tv', {}), ('resnet50-byol', dict(width=64, stride_on='1x1'))]


@pytest.fixture
def records(monkeypatch):
    """Classes of the packages that BYOL's file names, importable while it is written and gone when it is read."""
    with monkeypatch.context() as importable:
        modules = {name: ModuleType(name) for name in ('byol', 'byol.byol_experiment', 'byol.utils', 'byol.utils.optimizers',
                                                       'haiku', 'haiku._src', 'haiku._src.data_structures')}
        for name, module in modules.items():
            importable.setitem(sys.modules, name, module)
        state = namedtuple('_ByolExperimentState', 'online_params target_params online_state target_state opt_state')
        lars = namedtuple('LarsState', 'momentum')

        class FlatMapping(dict):
            def __reduce__(self):
                return type(self), (dict(self),)

        made = {}
        for key, cls, module in (('State', state, 'byol.byol_experiment'), ('Lars', lars, 'byol.utils.optimizers'),
                                 ('Mapping', FlatMapping, 'haiku._src.data_structures')):
            cls.__module__, cls.__qualname__ = module, cls.__name__
            setattr(modules[module], cls.__name__, cls)
            made[key] = cls
        yield made


@pytest.mark.parametrize('kind', ['tuples', 'records'])
def test_byol(tmp_path, records, kind, monkeypatch):
    path = saved(tmp_path / 'pretrain_res50x1.pkl', byol_content(records if kind == 'records' else None))
    for name in [name for name in sys.modules if name.partition('.')[0] in ('byol', 'haiku')]:
        monkeypatch.delitem(sys.modules, name)
    raw = (tmp_path / 'pretrain_res50x1.pkl').read_bytes()
    assert (b'_ByolExperimentState' in raw) == (kind == 'records')
    loaded, (params, state) = weights.load(path), haiku()
    assert (loaded.backbone, loaded.options, loaded.input_size) == ('resnet50-byol', dict(width=2), 224)
    assert (loaded.mean, loaded.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert loaded.info['ignored'] == {'target network, optimiser': ['target_params', 'target_state', 'opt_state'],
                                      'beside the network': ['rng', 'step'], 'head': 16,
                                      'average without correction, and its counter': 2 * 2 * 53}
    check_maps(network(loaded), lambda x: haiku_maps(params, state, x))


@torch.no_grad()
def test_torchvision_by_file(tmp_path):
    theirs = settle(models.resnet18(num_classes=3))
    loaded = weights.load(saved(tmp_path / 'resnet18.pth', theirs.state_dict()))
    assert (loaded.backbone, loaded.options, loaded.input_size) == ('resnet18-tv', {}, 224)
    assert loaded.info == dict(format='state dict', ignored={'classifier': 2, 'batch counter': 20})
    theirs.fc, x = torch.nn.Identity(), pictures(2, 64)
    torch.testing.assert_close(network(loaded).features(x), theirs(x))


@pytest.mark.parametrize('metadata', [None, {'format': 'pt'}])
@pytest.mark.parametrize('tensors', [True, False])
def test_a_bare_state_dict_in_a_safetensors_file(tmp_path, metadata, tensors):
    modules = basic(5, 4, (2, 2, 2, 2))
    safetensors.torch.save_file({name: t.half() if t.is_floating_point() else t for name, t in torch_layout(modules).items()},
                                tmp_path / 'w', metadata)
    loaded = weights.load(str(tmp_path / 'w'), tensors)
    assert (loaded.backbone, loaded.options, loaded.input_size) == ('resnet18-md', dict(width=4), 84)
    assert len(loaded.tensors) == 100 * tensors and {t.dtype for t in loaded.tensors.values()} <= {torch.float32}


def test_a_file_that_changes_is_read_again(tmp_path):
    path = saved(tmp_path / 'w', url_content(4))
    assert weights.load(path).options == dict(width=4)
    weights.load(path).tensors.clear()                          # what is given out is not what is remembered
    weights.load(path, tensors=False).options.clear()
    first = weights.load(path)
    assert len(first.tensors) == 100 and first.options == dict(width=4)
    saved(tmp_path / 'w', url_content(6))
    assert weights.load(path).options == dict(width=6) and weights.load(path).digest != first.digest


# -- what does not fit -------------------------------------------------------------------------------------------------

CONTENTS = {'url': (url_content, 'state_dict', 'layer3.0.bn2.'), 'rfs': (rfs_content, 'model', 'layer3.0.bn2.'),
            'mammoth': (mammoth_content, 'model', 'net.layer3.0.bn2.')}


@pytest.mark.parametrize('kind', CONTENTS)
@pytest.mark.parametrize('change, words', [
    (lambda state, name: state.pop(f'{name}weight'), ['layer3.0.bn2.weight (missing)']),
    (lambda state, name: state.update({f'{name}alpha': torch.ones(2)}), ['layer3.0.bn2.alpha (unknown)']),
    (lambda state, name: state.update({f'{name}bias': torch.ones(99)}), ['layer3.0.bn2.bias (99,) for (']),
    (lambda state, name: state[f'{name}bias'].fill_(float('nan')), ['layer3.0.bn2.bias', 'not finite']),
    (lambda state, name: state.update({f'{name}bias': torch.ones(2, dtype=torch.int64)}), ['layer3.0.bn2.bias', 'real numbers']),
    (lambda state, name: state.update({f'{name}bias': 'text'}), ['layer3.0.bn2.bias', 'tensor']),
    (lambda state, name: state.update({f'module.{name}bias'.replace('module.net.', 'net.module.'): torch.ones(2)}), ['two', 'layer3.0.bn2.bias']),
], ids=['missing', 'extra', 'misshaped', 'not finite', 'whole numbers', 'no tensor', 'twice'])
@pytest.mark.parametrize('tensors', [True, False])
def test_every_tensor_is_accounted_for(tmp_path, kind, change, words, tensors):
    make, entry, name = CONTENTS[kind]
    content = make()
    change(content[entry], name)
    path = saved(tmp_path / 'w', content)
    with refused(f'--weights {path}', *words):
        weights.load(path, tensors)


TORSO = 'res_net50/~/block_group_2/~/block_1/~/'


@pytest.mark.parametrize('change, words', [
    (lambda p, s: p.pop(f'{TORSO}conv_1'), ['layer3.1.conv2.weight']),
    (lambda p, s: s.pop(f'{TORSO}batchnorm_1/~/var_ema'), ['layer3.1.bn2.running_var']),
    (lambda p, s: p.update({f'{TORSO}squeeze': dict(w=np.ones(3))}), ['block_group_2/block_1/squeeze/w']),
    (lambda p, s: p[f'{TORSO}conv_0'].update(b=np.ones(3)), ['block_group_2/block_1/conv_0/b']),
    (lambda p, s: p.update({f'{TORSO}conv_3': p[f'{TORSO}conv_2']}), ['layer3.1.conv4.weight']),
    (lambda p, s: p[f'{TORSO}conv_1'].update(w=np.ones((3, 3, 8, 7), np.float32)), ['layer3.1.conv2.weight (7, 8, 3, 3) for (8, 8, 3, 3)']),
    (lambda p, s: p[f'{TORSO}batchnorm_0'].update(scale=np.ones((1, 1, 2, 4), np.float32)), ['layer3.1.bn1.weight (1, 1, 2, 4) for (8,)']),
    (lambda p, s: p[f'{TORSO}conv_0'].update(w=np.array(['x'])), ['conv_0/w', 'real numbers']),
    (lambda p, s: p.update({f'{TORSO}conv_0': 5}), ['int', 'dict of arrays']),
    (lambda p, s: p.update({'res_net50/block_group_2/block_1/conv_0': p[f'{TORSO}conv_0']}), ['two', 'layer3.1.conv1.weight']),
    (lambda p, s: p[f'{TORSO}conv_0']['w'].fill(np.inf), ['layer3.1.conv1.weight', 'not finite']),
], ids=['convolution', 'average', 'module', 'leaf', 'index', 'shape', 'shape of a norm', 'text', 'no dict', 'twice', 'not finite'])
def test_every_array_of_byol_is_accounted_for(tmp_path, change, words):
    params, state = haiku()
    change(params, state)
    path = saved(tmp_path / 'w.pkl', dict(experiment_state=(params, {}, state, {}, ()), step=1))
    with refused(f'--weights {path}', *words):
        weights.load(path)


@pytest.mark.parametrize('content, words', [
    ({'state_dict': torch_layout({'features.0': Random().conv(3, 3, 4)})}, ['features.0.weight', 'no backbone that can be read', 'resnet12']),
    ({'state_dict': torch_layout(basic(9, 4, (2, 2, 2, 2)))}, ['conv1 of 9 px, blocks 2-2-2-2 of 2 convolutions']),
    ({'state_dict': torch_layout({k: v for k, v in basic(5, 4, (2, 2, 2, 2)).items() if k != 'conv1'})}, ['conv1 of 0 px']),
    ({'state_dict': {'classifier.weight': torch.ones(2)}}, ['no backbone that can be read']),
    ({'weights': {'a': torch.ones(2)}, 'epoch': 3}, ['weights, epoch', 'not an ordinary tensor']),
    ({}, ['a dict']),
    (torch.ones(3), ['a Tensor']),
    ([1, 2], ['a list']),
    ({5: torch.ones(3)}, ['5', 'not an ordinary tensor']),
    ({'conv1.weight': torch.ones(3).to_sparse()}, ['conv1.weight', 'not an ordinary tensor']),
    ({'state_dict': torch_layout(twelve(2)) | {'layer1.0.bn1.weight': torch.ones(3)}}, ['width=3', 'even']),
], ids=['other names', 'other stem', 'no stem', 'head only', 'nested', 'empty', 'tensor', 'list', 'number', 'sparse', 'odd width'])
@pytest.mark.filterwarnings('ignore:Validating sparse')
def test_what_holds_no_known_network(tmp_path, content, words):
    torch.save(content, tmp_path / 'w')
    with refused(f"--weights {tmp_path / 'w'}", *words):
        weights.load(str(tmp_path / 'w'))


@pytest.mark.parametrize('content, words', [
    (dict(experiment_state=5), ['five parts']), (dict(experiment_state=({}, {})), ['five parts']),
    (dict(experiment_state=(1, 2, 3, 4, 5)), ['dict of arrays']), (dict(experiment_state=({}, {}, {}, {}, {})), ['resnet50-byol', 'bn1.bias (missing)', 'and 262 more']),
    (dict(data=[1, 2]), ['data', 'tensor']), ([1, 2], ['a list']),
], ids=['number', 'two', 'numbers', 'empty', 'data', 'list'])
def test_pickles_that_hold_no_known_network(tmp_path, content, words):
    (tmp_path / 'w').write_bytes(pickle.dumps(content, 2))
    with refused(f"--weights {tmp_path / 'w'}", *words):
        weights.load(str(tmp_path / 'w'))


def test_a_class_that_is_allowed_gets_no_say(tmp_path, records):
    """A method of BYOL's or Haiku's classes is not looked up either: `byol` may be anybody's package by then."""
    sign = tmp_path / 'sign'
    module = sys.modules['byol.byol_experiment']
    module.run = lambda path: open(path, 'w').close()
    module.run.__module__, module.run.__qualname__, module.run.__name__ = 'byol.byol_experiment', 'run', 'run'
    path = saved(tmp_path / 'w.pkl', byol_content() | dict(rng=Calls(module.run, str(sign))))
    assert weights.load(path).backbone == 'resnet50-byol' and not sign.exists()


# -- files by name -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('name, words', [
    ('url-resnet18', ['1Dv8TX6iQ-BE2NMpfd0sQmH2q4mShmo1A', 'model_best.pth.tar', '45 MB', 'url-resnet18.pth.tar']),
    ('sdl-resnet18', ['1MvUcvQ8OQtoOk1MIiJmK6_G8p4h8cbY9', 'imagenet-net', '45 MB']),
    ('rfs-resnet12', ['https://github.com/WangYueFt/rfs', '50 MB', 'rfs-resnet12.pth']),
    ('byol-resnet50', ['https://storage.googleapis.com/deepmind-byol/', '570 MB', 'CC BY-NC 4.0', 'pretrain_res50x1.pkl']),
    ('ResNet18_Weights.IMAGENET1K_V1', ['https://download.pytorch.org/models/resnet18-f37072fd.pth', '45 MB', 'hub/checkpoints']),
    ('ResNet50_Weights.IMAGENET1K_V2', ['https://download.pytorch.org/models/resnet50-11ad3fa6.pth', '98 MB']),
    ('ResNet50_Weights.IMAGENET1K_V9', ['torchvision has no such weights']),
    ('url-resnet', ['did you mean url-resnet18?']),
])
def test_what_must_be_fetched_says_from_where_to_where_and_how_much(tmp_path, monkeypatch, name, words):
    monkeypatch.setattr(weight_files, 'SHIPPED', tmp_path / 'weights')
    monkeypatch.setenv('TORCH_HOME', str(tmp_path))
    with refused(f'--weights {name}:', *words):
        weights.load(name)
    if name in weight_files.PUBLISHED:
        with refused(str(tmp_path / 'weights' / weight_files.PUBLISHED[name].file)):
            weights.load(name)


@pytest.mark.parametrize('name, content', [('url-resnet18', url_content), ('sdl-resnet18', url_content), ('rfs-resnet12', rfs_content),
                                           ('byol-resnet50', byol_content)])
def test_what_has_been_fetched_is_found_by_name(tmp_path, monkeypatch, name, content):
    monkeypatch.setattr(weight_files, 'SHIPPED', tmp_path)
    file = tmp_path / weight_files.PUBLISHED[name].file
    saved(file, content())
    loaded = weights.load(name)
    assert loaded.name == name and loaded.backbone == weight_files.PUBLISHED[name].backbone
    assert loaded.info.get('saw') == ('ImageNet' if name == 'byol-resnet50' else None)        # what seq-miniimg refuses
    network(loaded)
    torch.save(mammoth_content(), file)
    with refused(f'--weights {name}', str(file), 'resnet18', f'expected {loaded.backbone}'):
        weights.load(name)


def test_torchvisions_files_are_found_in_torchs_cache_and_checked(tmp_path, monkeypatch):
    monkeypatch.setenv('TORCH_HOME', str(tmp_path))
    folder = tmp_path / 'hub' / 'checkpoints'
    folder.mkdir(parents=True)
    with torch.device('meta'):
        shapes = {name: t.shape for name, t in models.resnet18(num_classes=2).state_dict().items()}
    state = {name: torch.zeros(()).expand(shape) for name, shape in shapes.items()}
    torch.save(state, folder / 'resnet18-f37072fd.pth')         # not what torchvision has under this name
    with refused('--weights ResNet18_Weights.IMAGENET1K_V1', 'resnet18-f37072fd.pth is damaged'):
        weights.load('ResNet18_Weights.IMAGENET1K_V1')
    digest = hashlib.sha256((folder / 'resnet18-f37072fd.pth').read_bytes()).hexdigest()
    (folder / 'resnet18-f37072fd.pth').rename(folder / f'resnet18-{digest[:8]}.pth')
    monkeypatch.setattr(models, 'get_weight', lambda name: SimpleNamespace(url=f'https://host/resnet18-{digest[:8]}.pth'))
    loaded = weights.load('ResNet18_Weights.IMAGENET1K_V1')
    assert (loaded.backbone, loaded.input_size, loaded.digest, loaded.info['saw']) == ('resnet18-tv', 224, digest, 'ImageNet')


def test_a_safetensors_file_may_begin_like_a_pickle(tmp_path):
    for size in range(300):
        safetensors.torch.save_file({'a' * (size + 1): torch.ones(1)}, tmp_path / 'w')
        if (tmp_path / 'w').read_bytes()[0] == 0x80:
            break
    else:
        pytest.fail('no header of such a length')
    assert not checkpoints.is_checkpoint(tmp_path / 'w')
