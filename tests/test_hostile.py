"""Invalid runs, as tables: flags, schedules, texts, data. Each ends in one line and exit
code 2, quickly, and changes no results of earlier runs; whatever else is given is a run. Files:
`tests/test_corrupt.py`."""

import string

import numpy as np
import pytest
import safetensors
import safetensors.torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import core.configs
from core.configs import read_yaml
from core.rows import FILE, append_row
from datasets.utils import readers
from datasets.utils.readers import Images
from scroll import InputError
from scroll.streams.schedule_forms import FORMS
from scroll.streams.schedules import make_schedule
from tests.conftest import files_below, words_of

LONG = '9' * 30
fuzz = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
SMALL = words_of(
    '--dataset seq-digits --weights none --width 2 --batch_size 16 --n_splits 2 --non_verbose 1'
)
METHODS = {
    'sgd': ['--lr 0.001 --n_epochs 1'],
    'scroll': ['--iterations 1 --feature_cache 0 --buffer_size 9'],
}


@pytest.fixture
def ends(command_line, tmp_path):
    """ends(*flags): the one line on stderr of a run of SGD on the digits, which must end with exit
    code 2 and lose no row.
    """
    fixed = {
        '--model': 'sgd',
        '--dataset': 'seq-digits',
        '--lr': '0.1',
        '--n_epochs': '1',
        '--weights': 'none',
        '--width': '2',
        '--base_path': tmp_path / 'base',
    }
    append_row(tmp_path / 'base' / 'results' / 'class-il' / 'seq-digits' / 'sgd', {'task1': 1.5})

    def files():
        return {path: path.read_bytes() for path in files_below(tmp_path)}

    def run(*flags):
        needless = set(flags)
        if needless & {'gdumb', 'ens', 'scroll'}:
            needless |= {'--lr', '--n_epochs'}
        if '--weights' in flags:
            needless.add('--width')
        words = [
            word for flag, value in fixed.items() if flag not in needless for word in (flag, value)
        ]
        before = files()
        code, out, err = command_line(*words, *flags)
        assert (code, len(err.splitlines())) == (2, 1), (code, err)
        assert 'error' not in out, (code, err)
        assert err.startswith('main.py: error: '), (code, err)
        assert len(err) < 2000, (code, err)
        assert files() == before
        return err

    return run


FLAGS = {  # what is given -> a word that the line must have
    '--model scrol': 'did you mean scroll',
    '--model zzz': 'known: agem',
    '--dataset seq-digit': 'did you mean seq-digits',
    '--backbone vit': 'resnet18',
    '--model scroll --bufer_size 3': 'did you mean --buffer_size?',
    '--n_splits many': 'whole number',
    '--model scroll --ridge_lambda 0': 'number from',
    '--model scroll --predictor svm': 'ncc',
    '--schedule gauss': "'gauss'",
    '--schedule iid --n_splits 3': '--n_splits and --schedule',
    '--weights no-such': "'none'",
    '--weights compact --width 4': 'do not fit',
    '--dataset_config nope': '--dataset_config nope',
    '--dataset seq-folder': '--data_dir is missing',
    '--dataset seq-folder --data_dir /nonexistent': 'train/<class>/',
    '--dataset seq-miniimg': 'mini-imagenet-cache-test.pkl',
    '--model scroll --n_epochs 5': '--n_epochs 5',
    '--optim_nesterov 1': 'optim_mom',
    '--alpha 5': 'no such flag',
    '--lr nan': '--lr',
    f'--lr 1e{LONG}': '--lr',
    '--batch_size 0': 'at least 1',
    f'--batch_size {LONG}': 'at most',
    '--num_threads 999999999': 'at most',
    '--seed -1': 'at least 0',
    '--input_size 0': 'at least 8',
    '--input_size 1000000000': 'at most',
    '--width 0': 'width',
    '--width 1000000000': '--backbone',
    '--width 100000': 'GiB',
    '--device gpu': 'use cpu',
    '--device cuda:99': 'use cpu',
    '--optimizer __class__': 'sgd',
    '--n_splits 0': 'at least 1',
    '--n_splits 1000000000000': '10 classes',
    '--validation 100': '100',
    '--label_perc 0': 'above 0',
    '--lpc 0.0001': 'no label',
    '--custom_class_order 0-1-1': '10 classes 0..9',
    '--custom_task_order ../../etc': 'task',
    '--start_from 99': '99',
    '--model_config ../x': 'best',
    '--model ../scroll': 'no such model',
    '--dataset_config ../../models/config/sgd': 'no such config',
    '--ckpt_name ../../x --savecheck last': 'without folders',
    f'--weights {"x" * 5000}': 'too long',
    '--weights /dev/zero': 'nor a file',
    '--loadcheck /dev/zero': 'no such file',
    '--results_path ' + 'x' * 5000: 'too long',
    '--model er --buffer_size 1000000000': 'GiB',
    '--model scroll --buffer_size 10^23': '10^23',
    '--model er --buffer_size -1': 'at least 0',
    f'--model ens --n_classifiers 1{"0" * 12}': 'GiB',
    '--model ens --n_classifiers 4 --top_k 5': '--top_k 5',
    '--model gdumb --buffer_size 5 --fitting_batch_size 1': 'at least 2',
    '--dataset seq-folder --data_dir /dev/null': '--data_dir',
}


@pytest.mark.parametrize('flags', FLAGS, ids=lambda flags: flags[:40])
def test_flags(ends, flags):
    assert FLAGS[flags] in ends(*flags.split())


def test_a_run_that_runs_out_of_memory(ends, monkeypatch):
    for error in (
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError('CUDA out of memory.'),
    ):
        monkeypatch.setattr(
            'bench.run.training.train', lambda *_, error=error: (_ for _ in ()).throw(error)
        )
        assert 'not enough memory' in ends()


CONFIGS = {
    'no tasks': b'N_TASKS: 0',
    'tasks as text': b'N_TASKS: many',
    'half a task': b'N_TASKS: 1.5',
    'no classes a task': b'N_CLASSES_PER_TASK: []',
    'classes as text': b'N_CLASSES_PER_TASK: [2, x]',
    'mean of two': b'MEAN: [0, 0]',
    'deviation 0': b'STD: 0',
    'a size': b'SIZE: 8',
    'setting': b'SETTING: [x]',
    'unknown transform': b'TRANSFORM: [os.system]',
    'transform of code': b'TRANSFORM: [{Lambda: {lambd: os.system}}]',
    'transform with a wrong parameter': b'TRANSFORM: [{Resize: {siz: 3}}]',
    'transform of numbers': b'TRANSFORM: 3',
}


def test_configs(ends, tmp_path, monkeypatch):
    """Constants of data sets; flags in config files: `tests/bench/test_args.py`."""
    monkeypatch.setattr(core.configs, 'ROOT', tmp_path)
    path = tmp_path / 'datasets/configs/seq-digits/default.yaml'
    path.parent.mkdir(parents=True)
    for text in CONFIGS.values():
        path.write_bytes(text)
        line = ends()
        assert path.name in line or 'data-set config' in line


@pytest.mark.parametrize(
    'content', [b'\x89PNG\xff\xfe\0', b'task1\n\xff\n', b'task1\n1,2,3\n', None], ids=str
)
def test_a_file_that_can_take_no_results_is_reported_before_any_work(
    ends, tmp_path, content, monkeypatch
):
    monkeypatch.setattr(
        'bench.run.training._learn_task', lambda *_: pytest.fail('it has begun to learn')
    )
    path = tmp_path / 'base' / 'results' / 'task-il' / 'seq-digits' / 'sgd' / FILE
    path.parent.mkdir(parents=True)
    path.mkdir() if content is None else path.write_bytes(content)
    assert FILE in ends()
    assert path.is_dir() or path.read_bytes() == content


def test_a_results_folder_that_cannot_be_is_told_before_the_data_are_read(ends, monkeypatch):
    monkeypatch.setattr(readers, 'digits', None)  # nobody may come that far
    assert '--disable_log 1' in ends('--base_path', '/dev/null/below')


# -- any text


@fuzz
@given(text=st.text(st.sampled_from('a:-[]{},&*!|>#"\'\n \t1.?%@`'), max_size=60))
def test_any_yaml_is_a_mapping_or_refused(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / 'fuzz.yaml'
    path.write_text(text)
    try:
        assert isinstance(read_yaml(path), dict)
    except InputError as error:
        assert 'fuzz.yaml' in str(error)  # noqa: PT017 (or it is valid)


WORDS = st.sampled_from(
    [
        '--lr',
        '--batch_size',
        '--schedule',
        '--validation',
        '--device',
        '--model_config',
        '--no_such',
        '--',
        '-O3',
        '--lr=1',
        '1',
        '-1',
        'nan',
        'None',
        'best',
    ]
)


@fuzz
@given(words=st.lists(WORDS | st.text(max_size=8), max_size=5))
def test_any_command_line_is_a_run_or_refused(parse, words):
    if not {'-h', '--help'} & set(words):
        try:
            parse('sgd', '--lr 0.1', *words)
        except InputError as error:
            assert str(error)  # noqa: PT017 (or it is valid)


VALUES = (
    st.integers(-1, 9).map(str)
    | st.sampled_from(['1.5', '1e3', 'nan', 'inf', LONG, 'label', 'random', '2-1-0', '0-0-1', '٣'])
    | st.text(string.printable, max_size=6)
)
OPTIONS = sorted({name for form in FORMS.values() for name in form.options})


@st.composite
def specs(draw) -> str:
    """Text that is a schedule, or nearly one."""
    name = draw(st.sampled_from(sorted(FORMS)))
    items = draw(
        st.lists(
            st.tuples(st.sampled_from([*FORMS[name].options, *OPTIONS[:2]]), VALUES),
            max_size=4,
            unique_by=lambda item: item[0],
        )
    )
    argument = [draw(VALUES)] if draw(st.booleans()) else []
    text = (
        name
        + draw(st.sampled_from([':', ':', ',', '']))
        + ','.join([*argument, *(f'{key}={value}' for key, value in items)])
    )
    at = draw(st.integers(0, len(text)))
    return text if draw(st.booleans()) else text[:at] + draw(st.text(max_size=2)) + text[at + 1 :]


@settings(fuzz, max_examples=150)
@given(
    spec=specs() | st.text(max_size=30),
    labels=st.lists(st.integers(0, 4), max_size=60),
    seed=st.integers(0, 9),
)
def test_any_schedule_orders_the_samples_or_is_refused(spec, labels, seed):
    try:
        schedule = make_schedule(spec, labels, seed)
    except InputError as error:
        assert len(str(error)) < 2000  # noqa: PT017 (or it is valid)
        assert len(str(error).splitlines()) == 1  # noqa: PT017 (or it is valid)
    else:
        assert schedule.cuts[0] == 0
        assert schedule.cuts[-1] == len(schedule.order)
        assert (np.diff(schedule.cuts) > 0).all()
        assert schedule.covers != 'all' or sorted(schedule.order.tolist()) == list(
            range(len(labels))
        )


# -- data


def with_one(array, value) -> np.ndarray:
    """A copy with this value among the others."""
    return np.insert(array[1:], 3, value)


def few_images() -> Images:
    """Eight training and four test images of each of ten classes."""
    rng = np.random.default_rng(0)
    train, test = (rng.integers(0, 256, (n, 8, 8, 3), np.uint8) for n in (80, 40))
    names = [f'digit {c}' for c in range(10)]
    return Images(train, np.arange(80) % 10, test, np.arange(40) % 10, names)


def damaged() -> dict:
    """name -> (data that cannot be, a word that the line must have)."""
    few = few_images()
    images = few.train
    labels = few.train_labels
    of_others = labels != 3
    without_a_class = few._replace(train=images[of_others], train_labels=labels[of_others])
    without_tests = few._replace(test=few.test[:0], test_labels=few.test_labels[:0])
    cases = {
        'a class without samples': (without_a_class, 'class 3'),
        'no test images': (without_tests, 'no test images'),
        'no names': (few._replace(class_names=[]), '0 classes'),
        'a test label out of range': (
            few._replace(test_labels=with_one(few.test_labels, 77)),
            'test labels',
        ),
        'nothing': (None, 'read'),
    }
    for name, wrong, word in (
        ('a label out of range', with_one(labels, 99), '0..9'),
        ('a negative label', with_one(labels, -1), '0..9'),
        ('labels with fractions', labels + 0.5, 'whole numbers'),
        ('labels as text', labels.astype(str), 'whole numbers'),
        ('labels as a list', list(labels), 'arrays of numpy'),
        ('labels in columns', labels[:, None], '(80, 1)'),
        ('fewer labels than images', labels[:-3], '(77,)'),
    ):
        cases[name] = (few._replace(train_labels=wrong), word)
    for name, wrong, word in (
        ('images of real numbers', images / 255, 'float64'),
        ('images as a list', list(images), 'arrays of numpy'),
        ('two channels', images[..., :2], '(80, 8, 8, 2)'),
        ('no pixels', images[:, :0], '(80, 0, 8, 3)'),
        ('vectors', images[:, 0, 0], '(80, 3)'),
    ):
        cases[name] = (few._replace(train=wrong), word)
    return cases


@pytest.mark.usefixtures('small_digits')
@pytest.mark.parametrize('content, word', damaged().values(), ids=damaged())
def test_data_that_cannot_be(command_line, tmp_path, monkeypatch, content, word):
    monkeypatch.setattr(readers, 'digits', lambda: content)
    code, _, err = command_line('--model sgd', *METHODS['sgd'], *SMALL, '--base_path', tmp_path)
    assert (code, len(err.splitlines())) == (2, 1), err
    assert 'seq-digits' in err, err
    assert word in err, err
    assert not [path for path in files_below(tmp_path) if path.name == FILE]


def smallest() -> dict:
    """name -> data at the edge of what can be learned."""
    few = few_images()
    of_one_each = [part[:10] for part in few[:4]]
    return {
        'one pixel': few._replace(train=few.train[:, :1, :1], test=few.test[:, :1, :1]),
        'black': few._replace(train=few.train * 0, test=few.test * 0),
        'labels of eight bits': few._replace(train_labels=few.train_labels.astype(np.uint8)),
        'test images of another size': few._replace(test=few.test[:, :4]),
        'no colours': few._replace(train=few.train[..., 0], test=few.test[..., 0]),
        'one image a class': Images(*of_one_each, few.class_names),
    }


@pytest.mark.usefixtures('small_digits')
@pytest.mark.parametrize(
    'kind, method',
    [
        *((kind, 'scroll') for kind in smallest()),
        ('no colours', 'sgd'),
        ('one image a class', 'sgd'),
    ],
)
def test_the_smallest_data_are_learned(command_line, tmp_path, monkeypatch, kind, method):
    monkeypatch.setattr(readers, 'digits', lambda: smallest()[kind])
    code, _, err = command_line(
        '--model', method, *METHODS[method], *SMALL, '--base_path', tmp_path
    )
    assert (code, err) == (0, ''), err


@pytest.mark.usefixtures('small_digits')
@pytest.mark.parametrize('method', METHODS)
def test_a_network_that_gives_nan_is_reported(command_line, tmp_path, tiny_weights, method):
    tensors = {name: t * 1e30 for name, t in safetensors.torch.load_file(tiny_weights).items()}
    with safetensors.safe_open(tiny_weights, 'pt') as file:
        safetensors.torch.save_file(tensors, tmp_path / 'w.safetensors', file.metadata())
    flags = '--weights', tmp_path / 'w.safetensors', '--base_path', tmp_path
    code, _, err = command_line(
        '--model', method, *METHODS[method], '--dataset seq-digits --non_verbose 1', *flags
    )
    assert (code, len(err.splitlines())) == (2, 1)
    assert 'finite' in err
