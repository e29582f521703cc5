"""Hostile and broken input, as tables: each case ends in one line and exit code 2, within a minute and little memory; nothing that
a file names is run, and the results of earlier runs stay as they are. What random changes do to files: `tests/test_fuzz.py`.
"""
import io
import json
import os
import pickle
import resource
import signal
import struct
import zipfile

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

import core.configs
from core.rows import FILE, append_row
from tests.backbone.test_weights import rewrite
from tests.bench.test_safe_pickle import Calls
from tests.conftest import save_tiny

LONG = '9' * 30


@pytest.fixture(autouse=True)
def marker(tmp_path):
    """A file that payloads make; there must be none. Each test has a minute and a gigabyte."""
    path, before = tmp_path / 'payload-has-run', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail('it took more than a minute'))
    signal.alarm(60)
    yield path
    signal.alarm(0)
    assert not path.exists()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20        # kB


@pytest.fixture
def payload(marker) -> Calls:
    """What runs a command when a pickle is loaded carelessly."""
    return Calls(os.system, f'touch {marker}')


@pytest.fixture
def ends(command_line, tmp_path):
    """ends(*flags): the one line on stderr of a run of SGD on the digits, which must end with exit code 2 and lose no row."""
    fixed = {'--model': 'sgd', '--dataset': 'seq-digits', '--lr': '0.1', '--n_epochs': '1', '--weights': 'none', '--width': '2'}
    kept = append_row(tmp_path / 'base' / 'results' / 'class-il' / 'seq-digits' / 'sgd', dict(task1=1.5))
    before = kept.read_bytes()

    def run(*flags):
        own = {word for word in map(str, flags) if word.startswith('--')}
        dropped = own | ({'--lr', '--n_epochs'} if {'gdumb', 'ens', 'scroll'} & set(flags) else set())
        dropped |= {'--width'} if '--weights' in own else set()
        given = {flag: value for flag, value in {**fixed, '--base_path': tmp_path / 'base'}.items() if flag not in dropped}
        code, _, err = command_line(*(word for item in given.items() for word in item), *flags)
        assert (code, len(err.splitlines())) == (2, 1) and err.startswith('main.py: error: ') and len(err) < 2000, (code, err)
        assert kept.read_bytes() == before
        return err
    return run


# -- flags: what is given -> a word that the line must have ------------------------------------------------------------

FLAGS = {
    '--lr nan': '--lr', '--lr inf': '--lr', '--lr -1': '--lr', '--lr fast': 'fast', f'--lr 1e{LONG}': '--lr',
    '--batch_size 0': 'at least 1', '--batch_size -3': 'at least 1', '--batch_size 1.5': '1.5', f'--batch_size {LONG}': 'too large',
    '--n_epochs -1': 'at least 0', f'--n_epochs {LONG}': 'too large', '--num_threads 999999999': 'too large',
    '--num_workers 1000000': 'too large', '--seed -1': 'at least 0', f'--seed {LONG}': 'too large', '--eval_epochs 0': 'at least 1',
    '--input_size 0': 'at least 8', '--input_size 1000000000': 'too large', '--width 0': 'width', '--width -1': 'width',
    '--width 1000000000': '--backbone', '--width 100000': 'GiB', '--width 4k': "'4k'", '--device gpu': 'use cpu',
    '--device cuda:99': 'use cpu', f'--device {LONG}': 'use cpu', '--device -1': 'use cpu', '--optimizer __class__': 'sgd',
    '--n_splits 0': 'at least 1', '--n_splits -5': 'at least 1', '--n_splits 1000000000000': '10 classes', '--validation 100': '100',
    '--validation -1': '-1', '--validation nan': 'nan', '--noise_rate 1.5': '1.5', '--noise_rate nan': 'nan', '--label_perc 2': '2',
    '--label_perc 0': 'above 0', '--label_perc_by_class 0': 'above 0', '--label_perc 0.0001': 'no label', '--lpc 0.0001': 'no label',
    '--label_perc_by_class -0.5': '-0.5', '--custom_class_order 0-1-1': '10 classes', f'--custom_class_order {LONG}': '10 classes',
    '--custom_task_order ../../etc': 'task', '--start_from 99': '99', '--stop_after 99': '99', '--model_config ../x': 'best',
    '--model ../scroll': 'no such model', '--dataset ../../etc/passwd': 'no such dataset', '--backbone ../resnet18': 'no such backbone',
    '--dataset_config ../../models/config/sgd': 'no such config', '--ckpt_name ../../x --savecheck last': 'without folders',
    f'--weights {"x" * 5000}': 'too long', '--weights /dev/zero': 'nor a file', '--weights ../../../../etc/passwd': '/etc/passwd',
    '--loadcheck /dev/zero': 'no such file', '--loadcheck /etc/passwd': '/etc/passwd', '--results_path ' + 'x' * 5000: 'too long',
    '--base_path /proc/nowhere': '/proc/nowhere', '--no_such_flag 1': 'no such flag', '--buffer-size 3': '--buffer-size',
    '--schedule': 'expected one argument',
    f'--model er --buffer_size {LONG}': 'too large', '--model er --buffer_size 1000000000': 'GiB',
    f'--model scroll --buffer_size 1{"0" * 23}': 'too large', '--model scroll --buffer_size 10^23': '10^23', '--model er --buffer_size -1': 'at least 0', '--model er --buffer_size 0x10': '0x10',
    f'--model ens --n_classifiers 1{"0" * 12}': 'GiB', '--model ens --n_classifiers 4 --top_k 5': '--top_k 5',
    f'--model gdumb --buffer_size 5 --fitting_epochs {LONG}': 'too large', f'--model ens --embed_chunk {LONG}': 'too large',
    '--model gdumb --buffer_size 5 --fitting_batch_size 1': 'at least 2', '--dataset seq-folder --data_dir /dev/null': '--data_dir',
}


@pytest.mark.parametrize('flags', FLAGS, ids=lambda flags: flags[:40])
def test_flags(ends, flags):
    assert FLAGS[flags] in ends(*flags.split())


SCHEDULES = [
    '', ':', 'splat', 'split', 'split:', 'split:0', 'split:-1', 'split:1e9', 'split:٣', f'split:{LONG}', 'split:999999999999999',
    'split:5,order=0-0', f'split:5,order={LONG}', 'split:5,split:5', 'split:2,order=random,order=label', 'split:5;rm -rf x',
    '__import__("os").system("x")', 'iid,batch=0', 'iid,batch=-1', 'iid,batch=1.5', f'iid,batch={LONG}', 'single,n=3',
    'gaussian:sigma=0', 'gaussian:sigma=-1', 'gaussian:sigma=nan', 'gaussian:sigma=1e9', f'gaussian:sigma={LONG}', 'gaussian:batch=0',
    'gaussian-resample:batches=999999999999999', 'gaussian-resample:batch=999999999999999', 'gaussian-resample:batches=9',
    'gaussian-resample:width=0', 'blurry:tasks=999999999999999', 'blurry:major=101', 'blurry:minor=-1', 'siblurry:tasks=0',
    'siblurry:tasks=999999999999999', 'recurring:2,times=999999999999999', 'recurring:10,times=99999', 'recurring:11', 'recurring:999999999999999', 'imbalanced:999999999999999',
    'imbalanced:2,ratio=0', 'imbalanced:2,ratio=1e300', 'imbalanced:99', 'file:', 'file:/', 'file:/dev/zero', 'file:/dev/stdin',
    'file:/etc/passwd', 'file:no/such/file', 'x' * 5000, 'split:11', 'split:5,order=0-1', 'split:5,colour=red', 'blurry:3', 'iid:5']


@pytest.mark.parametrize('schedule', SCHEDULES, ids=lambda text: text[:30])
def test_schedules(ends, schedule):
    assert 'schedule' in ends('--schedule', schedule)


SCHEDULE_FILES = {
    'empty': b'', 'not numbers': b'a b c\n', 'not ascii': '0 1 \u0662\n'.encode(), 'no text': b'\xff\xfe\0\1', 'too few': b'0 1 2\n',
    'twice': b'0 0\n', 'negative': b'-1 0 1\n', 'out of range': b'99999 0\n', 'beyond 64 bits': b'9' * 30, 'broken numbers': b'1.5 2\n',
    'too large': b'0 ' * 100_000}


@pytest.mark.parametrize('content', SCHEDULE_FILES)
def test_schedule_files(ends, tmp_path, content):
    (tmp_path / 's.txt').write_bytes(SCHEDULE_FILES[content])
    assert 's.txt' in ends('--schedule', f'file:{tmp_path / "s.txt"}')


def test_a_run_that_runs_out_of_memory(ends, monkeypatch):
    for error in (MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), RuntimeError('CUDA out of memory.')):
        monkeypatch.setattr('bench.run.training.train', lambda *_, error=error: (_ for _ in ()).throw(error))
        assert 'not enough memory' in ends()


# -- weights -----------------------------------------------------------------------------------------------------------

def about(**changes):
    """Rewrites what a file says about itself; None leaves it out."""
    def change(path):
        content = path.read_bytes()
        size, = struct.unpack('<Q', content[:8])
        header = json.loads(content[8:8 + size])
        told = json.loads(header['__metadata__']['about']) | changes
        header['__metadata__']['about'] = json.dumps({name: value for name, value in told.items() if value is not None})
        header = json.dumps(header).encode()
        path.write_bytes(struct.pack('<Q', len(header)) + header + content[8 + size:])
    return change


def metadata(text: str):
    def change(path):
        safetensors.torch.save_file(safetensors.torch.load_file(path), path, {'about': text})
    return change


def bytes_of(change):
    return lambda path: path.write_bytes(change(path.read_bytes()))


def compressed(path):
    """A file of torch's, small on the disk and a gigabyte in memory."""
    made = io.BytesIO()
    torch.save({'conv1.weight': torch.zeros(4)}, made)
    with zipfile.ZipFile(made) as source, zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as target:
        for entry in source.infolist():
            target.writestr(entry.filename, b'\0' * (1 << 24) if entry.filename.endswith('/data/0') else source.read(entry))


WEIGHTS = {
    'compressed': compressed,
    'bits flipped in the header': bytes_of(lambda content: content[:40] + bytes([content[40] ^ 255]) + content[41:]),
    'header of 2^63 bytes': bytes_of(lambda content: b'\xff' * 8 + content[8:]),
    'more at the end': bytes_of(lambda content: content + b'more'),
    'another version': about(format='scroll-bench-weights-99'),
    'no version': about(format=None),
    'backbone outside': about(backbone='../../etc/passwd'),
    'backbone of another kind': about(backbone=['resnet18']),
    'unknown option': about(options=dict(width=4, __class__=3)),
    'option of another kind': about(options=dict(width=[4])),
    'option too large': about(options=dict(width=10 ** 9)),
    'options of another kind': about(options=['width', 4]),
    'input size as text': about(input_size='84'),
    'input size 0': about(input_size=0),
    'input size of a billion': about(input_size=10 ** 9),
    'mean of two channels': about(mean=[0.5, 0.5]),
    'mean as text': about(mean='0.5'),
    'mean not a number': about(mean=[float('nan')] * 3),
    'deviation 0': about(std=[0, 0, 0]),
    'no info': about(info=None),
    'metadata that is no JSON': metadata('{'),
    'metadata nested ten thousand deep': metadata('[' * 10_000 + ']' * 10_000),
    'no tensors': lambda path: rewrite(path, lambda content: content.clear()),
    'whole numbers': lambda path: torch.save({'conv1.weight': torch.ones(4, 3, 5, 5, dtype=torch.int64)}, path),
    'a trillion numbers out of one': lambda path: torch.save({'conv1.weight': torch.zeros(1).expand(10 ** 6, 10 ** 6)}, path),
}


@pytest.mark.parametrize('damage', WEIGHTS)
def test_weights(ends, tmp_path, damage):
    path = tmp_path / 'w.safetensors'
    save_tiny(path)
    WEIGHTS[damage](path)
    assert 'w.safetensors' in ends('--weights', path) or 'width' in ends('--weights', path)


# -- configs -----------------------------------------------------------------------------------------------------------

CONFIGS = {
    'not UTF-8': b'lr: \xff\xfe', 'control characters': b'lr: \0\1', 'tabs': b'lr:\t- 1\n\t- 2', 'no mapping': b'- lr', 'a word': b'lr',
    'half a mapping': b'{lr: 1', 'unknown flag': b'no_such_flag: 1', 'another kind': b'lr: {a: 1}', 'a list': b'lr: [1, 2]',
    'a text': b'lr: fast', 'out of range': b'lr: -1', 'no number': b'lr: .nan', 'no date': b'lr: 2024-99-99', 'keys that are lists': b'? [a]\n: 1',
    'a list in itself': b'lr: &a [*a]', 'ten thousand deep': b'lr: ' + b'[' * 10_000,
    'a number of 5000 digits': b'batch_size: ' + b'9' * 5000, 'two documents': b'lr: 1\n---\nlr: 2', 'unknown tag': b'lr: !unknown 1',
    'an object': b'lr: !!python/object/apply:os.system ["touch MARKER"]', 'a module': b'!!python/module:os : 1',
    'a new object': b'lr: !!python/object/new:os.system ["touch MARKER"]', 'a function': b'lr: !!python/name:os.system ""'}
MODEL_CONFIGS = CONFIGS | {'default is a list': b'default: [1]', 'unknown in default': b'default: {no_such_flag: 1}'}
DATASET_CONFIGS = CONFIGS | {
    'no tasks': b'N_TASKS: 0', 'tasks as text': b'N_TASKS: many', 'a billion tasks': b'N_TASKS: 1000000000', 'half a task': b'N_TASKS: 1.5',
    'no classes a task': b'N_CLASSES_PER_TASK: []', 'classes as text': b'N_CLASSES_PER_TASK: [2, x]', 'mean of two': b'MEAN: [0, 0]',
    'mean as text': b'MEAN: a', 'deviation 0': b'STD: 0', 'deviation infinite': b'STD: .inf', 'a size': b'SIZE: 8', 'setting': b'SETTING: [x]',
    'unknown transform': b'TRANSFORM: [os.system]', 'transform of code': b'TRANSFORM: [{Lambda: {lambd: os.system}}]',
    'transform with a wrong parameter': b'TRANSFORM: [{Resize: {siz: 3}}]', 'transform of numbers': b'TRANSFORM: 3'}


@pytest.fixture
def config(tmp_path, monkeypatch, marker):
    """config(path, content): a file in a project of its own."""
    monkeypatch.setattr(core.configs, 'ROOT', tmp_path)

    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content.replace(b'MARKER', str(marker).encode()))
    return write


@pytest.mark.parametrize('content', MODEL_CONFIGS)
def test_configs_of_models(ends, config, content):
    text = MODEL_CONFIGS[content]
    config('models/config/sgd.yaml', text if text.startswith((b'default', b'- ', b'#')) or content not in CONFIGS else b'default:\n  ' + text)
    assert 'sgd.yaml' in ends('--lr', '0.1')


@pytest.mark.parametrize('content', DATASET_CONFIGS)
def test_configs_of_data_sets(ends, config, content):
    config('datasets/configs/seq-digits/default.yaml', DATASET_CONFIGS[content])
    line = ends()
    assert 'default.yaml' in line or 'data-set config' in line


# -- images ------------------------------------------------------------------------------------------------------------

def picture(**options) -> bytes:
    made = io.BytesIO()
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(made, **options)
    return made.getvalue()


def large_png() -> bytes:
    """The header of a picture of 60,000 x 60,000 pixels."""
    content = bytearray(picture(format='PNG'))
    content[16:24] = struct.pack('>II', 60_000, 60_000)
    import zlib
    content[29:33] = struct.pack('>I', zlib.crc32(bytes(content[12:29])))
    return bytes(content)


IMAGES = {
    'a picture too large': large_png(), 'PostScript': b'%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(MARKER) (w) file\n',
    'broken TIFF': b'II*\0\xff\xff\xff\x7f', 'broken GIF': b'GIF89a' + b'\xff' * 9, 'SVG': b'<svg/>'}


@pytest.fixture
def pictures(tmp_path):
    """A folder of images of two classes."""
    for part in ('train', 'test'):
        for name in ('a', 'b'):
            (tmp_path / 'data' / part / name).mkdir(parents=True)
            (tmp_path / 'data' / part / name / '1.png').write_bytes(picture(format='PNG'))
    return tmp_path / 'data'


@pytest.mark.parametrize('content', IMAGES)
def test_images(ends, pictures, marker, content):
    (pictures / 'test' / 'b' / '2.png').write_bytes(IMAGES[content].replace(b'MARKER', str(marker).encode()))
    assert '2.png' in ends('--dataset', 'seq-folder', '--data_dir', pictures)


# -- miniImageNet --------------------------------------------------------------------------------------------

def mini(**changes) -> bytes:
    content = dict(image_data=np.zeros((4, 84, 84, 3), np.uint8), class_dict=dict(n01=[0, 1], n02=[2, 3])) | changes
    return pickle.dumps({name: value for name, value in content.items() if value is not None}, 2)


def shared(depth: int = 40) -> list:
    """A list that stands for 2^40 numbers."""
    value = [0, 1]
    for _ in range(depth):
        value = [value, value]
    return value


PICKLES = {
    'no images': mini(image_data=None), 'no classes': mini(class_dict=None),
    'a list': pickle.dumps([1]), 'rows beyond the images': mini(class_dict=dict(n01=[9])), 'rows before the first': mini(class_dict=dict(n01=[-1])),
    'rows that are texts': mini(class_dict=dict(n01='01')), 'rows that are lists': mini(class_dict=dict(n01=[[0], [1]])),
    'rows that are half': mini(class_dict=dict(n01=[0.5])), 'classes without rows': mini(class_dict={}), 'images of floats':
    mini(image_data=np.zeros((4, 84, 84, 3))), 'images without colours': mini(image_data=np.zeros((4, 84, 84), np.uint8)),
    'images as text': mini(image_data='x'), 'a set': pickle.dumps({1, 2}), 'keys of tuples': pickle.dumps({((1, 2), (1, 2)): 1}),
    'few bytes that stand for 2^40 rows': mini(class_dict=dict(n01=shared())), 'few bytes that ask for 64 GB': b'\x80\x02Nr\xff\xff\xff\xff.',
    'a string of 2^60 bytes': b'\x80\x04\x8e' + struct.pack('<Q', 1 << 60) + b'x.', 'nested ten thousand deep': b'\x80\x02' + b']' * 10_000 + b'a' * 9999 + b'.',
    'a number of 99999 digits': b'I' + b'9' * 99_999 + b'\n.'}


@pytest.mark.parametrize('content', PICKLES)
def test_pickles_of_mini_imagenet(ends, tmp_path, content):
    home = tmp_path / 'base' / 'MINIIMAGENET'
    home.mkdir()
    (home / 'mini-imagenet-cache-test.pkl').write_bytes(PICKLES[content])
    assert 'mini-imagenet-cache-test.pkl' in ends('--dataset', 'seq-miniimg')


TABLES = {
    'other columns': b'a,b\n1,2\n', 'header alone': b'filename,label\n', 'no label': b'filename,label\nx.jpg,\n',
    'no UTF-8': b'\xff\xfe\0', 'a missing image': b'filename,label\nno-such.jpg,n01\n', 'an image elsewhere': b'filename,label\n../../x.jpg,n01\n',
    'an absolute path': b'filename,label\n/etc/passwd,n01\n', 'a folder': b'filename,label\n.,n01\n', 'a cell of a megabyte':
    b'filename,label\n"' + b'x' * 2 ** 20 + b'",n01\n'}


@pytest.mark.parametrize('content', TABLES)
def test_tables_of_mini_imagenet(ends, tmp_path, content):
    home = tmp_path / 'base' / 'MINIIMAGENET'
    (home / 'images').mkdir(parents=True)
    (home / 'test.csv').write_bytes(TABLES[content])
    assert str(home) in ends('--dataset', 'seq-miniimg')


# -- results ------------------------------------------------------------------------------------------------

RESULTS = {'binary': b'\x89PNG\xff\xfe\0', 'not UTF-8': b'task1\n\xff\n', 'cells without a column': b'task1\n1,2,3\n'}


@pytest.mark.parametrize('content', [*RESULTS, 'a folder'])
def test_a_file_that_can_take_no_results_is_told_before_any_work(ends, tmp_path, content, monkeypatch):
    monkeypatch.setattr('bench.run.training._learn_task', lambda *_: pytest.fail('it has begun to learn'))
    path = tmp_path / 'base' / 'results' / 'task-il' / 'seq-digits' / 'sgd' / FILE
    path.parent.mkdir(parents=True)
    path.mkdir() if content == 'a folder' else path.write_bytes(RESULTS[content])
    assert FILE in ends()
    assert path.is_dir() or path.read_bytes() == RESULTS[content]
