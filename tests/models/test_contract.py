"""The contract of every method: run on each schedule it declares, see no label of the
future, keep to |M|, ...
"""

import functools

import numpy as np
import pytest
import torch

import models
from bench.resume.state import Packer, load_model_state
from bench.run.building import initialize
from bench.run.training import train
from core.environment import warn_once
from datasets.utils import readers
from tests.bench.test_model_state import through_a_file
from tests.conftest import digits_are, first_of_each, refused, words_of
from tests.models.conftest import known_flags, same_state

METHODS = models.get_model_names()
TASK_FREE = [
    name for name in METHODS if 'general-continual' in models.get_model_class(name).COMPATIBILITY
]
OFFLINE = [name for name in METHODS if not models.get_model_class(name).ONLINE]
BUFFER = 25
QUICK = {
    'scroll': '--iterations 2 --model_config base',
    'gdumb': '--fitting_epochs 2',
    'bic': '--bic_epochs 5',
    'ens': '--n_classifiers 8 --top_k 2',
}
FROZEN = ('scroll', 'ens')  # methods that do not train the backbone
SPLIT = '--n_splits 3 --batch_size 12'


@pytest.fixture(scope='module', autouse=True)
def few_digits():
    """Eight training and four test images of each digit."""
    with digits_are(first_of_each(readers.digits(), 8, 4)) as few:
        yield few


@pytest.fixture(scope='module')
def start(parse, tmp_path_factory):
    """start(method, *flags): (model, dataset, args), ready to train."""
    base = tmp_path_factory.mktemp('contract')

    def build(method, *flags):
        words = words_of(QUICK.get(method, ''), *flags)
        if '--buffer_size' in known_flags(method) and '--buffer_size' not in words:
            words += ['--buffer_size', str(BUFFER)]
        if method in OFFLINE and '--n_epochs' not in words and 'gaussian' not in ' '.join(words):
            words += ['--n_epochs 1']
        return initialize(parse(method, *words, base_path=base))

    return build


def run(start, method, *flags, before=lambda model, dataset: None):
    """Train; returns (model, dataset). `before` is called when both are there."""
    model, dataset, args = start(method, *flags)
    before(model, dataset)
    train(model, dataset, args)
    return model, dataset


def predictions(model, dataset) -> torch.Tensor:
    """Logits on the test images of all tasks."""
    if model.net is not None:
        model.net.eval()
    with torch.no_grad():
        rows = []
        for task in range(dataset.N_TASKS):
            loader = dataset.test_loader(task)
            loader.raw = model.RAW_STREAM
            rows += [model(inputs) for inputs, _ in loader]
    return torch.cat(rows)


def kept(model) -> int:
    """Samples in the method's buffer, 0 without one."""
    if hasattr(model, 'learner'):
        return len(model.learner.buffer_)
    return len(model.buffer) if hasattr(model, 'buffer') else 0


# -- streams


@pytest.mark.parametrize('method', METHODS)
def test_each_method_runs_on_class_splits(start, method):
    """Unequal tasks, any order of classes, classes in pieces, a quarter of the labels missing."""
    # the norm of two samples that are nearly equal has any gradient, on some machines
    bn = '' if method in FROZEN else '--bn frozen'
    stream = '--schedule split:4,order=random,batch=5 --permute_classes 1 --batch_size 12'
    model, dataset = run(start, method, stream, '--label_perc 0.75', bn)
    assert model.current_task == 4
    assert kept(model) <= BUFFER
    logits = predictions(model, dataset)
    assert logits.shape == (40, 10)
    assert not torch.isnan(logits).any()
    if hasattr(model, 'buffer') and method != 'der':  # DER keeps no labels
        assert set(model.buffer.get_all_data()[1].tolist()) <= set(range(10))


@pytest.mark.parametrize('words', ['sgd', 'scroll', 'gdumb --buffer_size 1', 'joint', 'er-ace'])
def test_one_sample_at_a_time_is_learned(start, words):
    """The last maps of 8 pixels have one pixel, so that one sample has no batch statistics."""
    model, dataset = run(
        start, *words.split(), '--n_splits 2 --input_size 8 --batch_size 1 --label_perc 0.25'
    )
    assert torch.isfinite(predictions(model, dataset)).all()


@pytest.mark.parametrize('method', METHODS)
def test_on_a_stream_without_tasks_a_method_runs_or_is_refused_before_any_work(start, method):
    flags = ['--schedule gaussian:sigma=1,batch=8 --batch_size 8']
    if method not in TASK_FREE:
        with refused(f'--model {method}', 'tasks'):
            start(method, *flags)
        return
    model, dataset = run(start, method, *flags)
    assert dataset.SETTING == 'general-continual'
    assert not torch.isnan(predictions(model, dataset)).any()


DOWN = '-'.join(map(str, reversed(range(10))))


@pytest.mark.parametrize('method', ['er-aml', 'lwf', 'ssil', 'scroll'])
def test_the_first_task_may_have_the_highest_labels(start, method):
    """Labels that go down as classes come, in unequal tasks, do as well as labels that go up: only
    names have changed.

    The same images come in the same order, the head begins with the same rows; up to rounding, so
    do the logits."""
    calm = '' if method in FROZEN else '--lr 1e-3 --bn frozen'  # rounding stays small

    def logits(*flags, turn=False):
        model, dataset, args = start(method, '--batch_size 12', calm, *flags)
        if turn:
            with torch.no_grad():
                for p in model.net.classifier.parameters():
                    p.copy_(p.flip(0))
        train(model, dataset, args)
        return predictions(model, dataset), dataset.task_classes(0).tolist()

    down, first = logits('--schedule', f'split:3,order={DOWN}', turn=True)
    assert first == [6, 7, 8, 9]
    assert torch.isfinite(down).all()
    assert down.shape == (40, 10)
    up, first = logits('--schedule split:3 --custom_class_order', DOWN)
    assert first == [0, 1, 2, 3]
    assert torch.allclose(up, down.flip(1), atol=1e-4)


@pytest.mark.parametrize('method', ['bic', 'gdumb', 'icarl', 'scroll'])
def test_hundreds_of_classes(start, method):
    """In random order and three unequal tasks; a buffer with capacity for one sample of each class,
    and some over.
    """
    images = np.random.default_rng(0).integers(0, 256, (600, 8, 8, 3), np.uint8)
    names = [str(c) for c in range(200)]
    many = readers.Images(
        images[:400], np.repeat(np.arange(200), 2), images[400:], np.arange(200), names
    )
    with digits_are(many):
        model, dataset = run(
            start, method, '--schedule split:3,order=random --batch_size 50 --buffer_size 220'
        )
        assert sorted(len(dataset.task_classes(t)) for t in range(3)) == [66, 67, 67]
        assert kept(model) <= 220
        logits = predictions(model, dataset)
        assert logits.shape == (200, 200)
        assert not torch.isnan(logits).any()


@pytest.mark.parametrize('method', ['bic', 'icarl', 'lwf', 'er-ace', 'gdumb', 'scroll'])
def test_a_network_may_have_more_outputs_than_there_are_classes(start, method):
    """`--num_classes`; those that no class has are never predicted. Methods whose losses count the
    classes refuse it.
    """
    if 'num_classes' in models.get_model_class(method).REFUSED_FLAGS:
        with refused('--num_classes', method):
            start(method, '--num_classes 13 --n_splits 2')
        return
    model, dataset, args = start(method, '--num_classes 13 --n_splits 2')
    assert model.net.classifier.out_features == 13
    row = train(model, dataset, args)
    assert 0 <= row['task2'] <= 100
    assert row['num_classes'] == 13


# -- what a method sees, keeps and leaves alone

TWO_TASKS = f'{SPLIT} --stop_after 2'


@pytest.fixture(scope='module')
def watched_run(start):
    """watched_run(method): (model, dataset, logits, images seen) of two tasks; each batch stays as
    it is, |M| is kept to.
    """

    @functools.cache
    def go(method):
        seen = []

        def watch(model, dataset):
            observe = model.observe

            @functools.wraps(observe)
            def watched(*given, **more):
                before = [x.clone() for x in given]
                out = observe(*given, **more)
                assert all(map(torch.equal, before, given))
                assert hasattr(model, 'learner') or kept(model) <= BUFFER
                images = given[2] * 255 if given[2].is_floating_point() else given[2]
                seen.extend(image.round().to(torch.uint8).numpy().tobytes() for image in images)
                return out

            model.observe = watched

        model, dataset = run(start, method, TWO_TASKS, before=watch)
        del model.observe
        return model, dataset, predictions(model, dataset), seen

    return go


@pytest.mark.parametrize('method', METHODS)
def test_memory_is_bounded_inputs_stay_as_they_are_and_online_methods_see_each_sample_once(
    watched_run, start, few_digits, method
):
    model, dataset, _, seen = watched_run(method)
    assert seen
    assert kept(model) <= BUFFER
    assert all(map(np.array_equal, dataset.images[:4], few_digits[:4]))
    if method not in OFFLINE:
        assert len(seen) == len(set(seen)) == 56
        with refused('--n_epochs 2', 'once'):
            start(method, '--n_epochs 2')


@pytest.mark.parametrize('method', METHODS)
def test_a_run_depends_on_its_seed_and_on_what_came_alone(watched_run, start, method):
    """Shuffle the labels of the last task, invert its images, move the global generators: all is
    as before.
    """

    def poison(model, dataset):
        torch.rand(3)
        np.random.rand(3)
        rows = dataset.schedule.task(2)[0]
        dataset.train_labels = dataset.train_labels.copy()
        dataset.train_labels[rows] = np.random.default_rng(0).permutation(
            dataset.train_labels[rows]
        )
        train_images = dataset.images.train.copy()
        train_images[rows] = 255 - train_images[rows]
        dataset.images = dataset.images._replace(train=train_images)

    expected = watched_run(method)[2]
    assert torch.equal(predictions(*run(start, method, TWO_TASKS, before=poison)), expected)
    if method in ('er', 'gdumb', 'lwf'):
        assert not torch.equal(predictions(*run(start, method, TWO_TASKS, '--seed 1')), expected)


@pytest.mark.parametrize('method', METHODS)
def test_a_saved_and_reloaded_method_predicts_the_same(watched_run, start, method):
    """Through a file that holds plain data only."""
    model, _, expected, _ = watched_run(method)
    again, dataset, _ = start(method, SPLIT)
    load_model_state(again, through_a_file(Packer().members(model)))
    assert again.current_task == 2
    assert kept(again) == kept(model)
    assert torch.equal(predictions(again, dataset), expected)


@pytest.mark.parametrize(
    'method, flags, said',
    [
        ('joint', '', 'final predictor'),
        ('gdumb', '', '--fit_every_task 2'),
        ('gdumb', '--fit_every_task 2', ''),
        ('scroll', '--adaptation none', ''),
        ('joint', '--inference_only 1', ''),
    ],
)
def test_a_run_that_stops_before_its_final_predictor_says_so(start, capsys, method, flags, said):
    warn_once.cache_clear()
    run(start, method, TWO_TASKS, flags)
    warned = capsys.readouterr().err
    assert warned.count('--stop_after 2') == bool(said)
    assert said in warned


# -- limits, and learning


BASIC = '--bn frozen --lr 0.05 --batch_size 12'


@pytest.mark.parametrize(
    'method, terms, flags',
    [
        ('er', '--buffer_size 0', '--n_splits 3'),
        ('derpp', '--alpha 0 --beta 0', '--n_splits 3'),
        ('agem', '', '--n_splits 1'),
        ('gem', '', '--n_splits 1'),
        ('mir', '', '--n_splits 1'),
        ('er-ace', '--buffer_size 0 --use_custom_classifier 0', '--n_splits 3'),
        ('ewc-on', '--e_lambda 0', '--n_splits 3'),
        ('joint', '', '--n_splits 1 --lr_scheduler multisteplr --lr_milestones 1 --n_epochs 2'),
        ('joint', '', '--n_splits 1 --label_perc 0.5'),
    ],
)
def test_without_its_own_term_a_method_is_sgd_to_the_last_bit(start, method, terms, flags):
    """A weight of zero, no buffer, or no past: the same weights. Passes of their own move no batch
    statistics here.
    """
    model, _ = run(start, method, flags, BASIC, terms)
    sgd, _ = run(start, 'sgd', flags, BASIC)
    assert same_state(model.net, sgd.net)
