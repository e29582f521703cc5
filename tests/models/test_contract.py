"""What every method must do, whatever it is: run on each schedule it declares, see no
label of the future, keep to |M|, ..."""
import argparse
import functools
import io

import numpy as np
import pytest
import torch

import models
from backbone import get_backbone, weights
from bench.resume.state import load_model_state, model_state
from bench.run.building import initialize
from bench.run.training import train
from core.environment import warn_once
from datasets.utils import readers, scheduled_dataset
from scroll.embedding.embedder import state_digest
from tests.conftest import refused
from tests.models.conftest import known_flags

pytestmark = pytest.mark.usefixtures('small_digits')
METHODS = models.get_model_names()
TASK_FREE = [name for name in METHODS if 'general-continual' in models.get_model_class(name).COMPATIBILITY]
OFFLINE = [name for name in METHODS if not models.get_model_class(name).ONLINE]
BUFFER = 25
QUICK = {'scroll': ['--iterations', '3', '--model_config', 'base'], 'gdumb': ['--fitting_epochs', '2'],
         'bic': ['--bic_epochs', '5'], 'ens': ['--n_classifiers', '8', '--top_k', '2']}
FROZEN = ('scroll', 'ens')              # methods that do not train the backbone
SPLIT = ('--n_splits', '3', '--batch_size', '12')


@pytest.fixture
def start(parse, tmp_path):
    """start(method, *flags): (model, dataset, args), ready to train."""
    def build(method, *flags):
        words = [*QUICK.get(method, []), *flags]
        if '--buffer_size' in known_flags(method) and '--buffer_size' not in words:
            words += ['--buffer_size', str(BUFFER)]
        if method in OFFLINE and '--n_epochs' not in words and 'gaussian' not in ' '.join(words):
            words += ['--n_epochs', '1']
        return initialize(parse(method, *words, base_path=tmp_path))
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
# -----------------------------------------------------------------------------------------------------------

STREAMS = ['split:3', 'split:10', 'split:4,order=random', 'split:3,batch=5', 'iid']


@pytest.mark.parametrize('stream', STREAMS)
@pytest.mark.parametrize('method', METHODS)
def test_each_method_runs_on_class_splits(start, method, stream):
    """Unequal tasks, one class a task, any order of classes, classes in pieces, all at
    once; renamed classes in all of them."""
    # the norm of two samples that are nearly equal has any gradient, on some machines
    tiny = 'batch=' in stream
    bn = ['--bn', 'frozen'] if tiny and method not in FROZEN else []
    model, dataset = run(start, method, '--schedule', stream, '--permute_classes', '1', '--batch_size', '12',
                         *bn)
    assert model.current_task == dataset.N_TASKS and kept(model) <= BUFFER
    logits = predictions(model, dataset)
    assert logits.shape == (40, 10) and not torch.isnan(logits).any()


@pytest.mark.parametrize('method', METHODS)
def test_on_a_stream_without_tasks_a_method_runs_or_is_refused_before_any_work(start, method):
    flags = '--schedule', 'gaussian:sigma=1,batch=8', '--batch_size', '8'
    if method not in TASK_FREE:
        with refused(f'--model {method}', 'tasks'):
            start(method, *flags)
        return
    model, dataset = run(start, method, *flags)
    assert dataset.SETTING == 'general-continual' and kept(model) <= BUFFER
    assert not torch.isnan(predictions(model, dataset)).any()


DOWN = '-'.join(map(str, reversed(range(10))))
DRAWS_BY_LABEL = {'ens': 'weights of class after class',
                  'gdumb': 'a batch is drawn from rows sorted by label',
                  **dict.fromkeys(('bic', 'gem', 'icarl'), 'memory of class after class')}


@pytest.mark.parametrize('method', METHODS)
def test_the_first_task_may_have_the_highest_labels(start, method):
    """Labels that go down as classes come, in unequal tasks, do as well as labels
    that go up: only names have changed.

    The same images come in the same order, the head begins with the same rows; up to rounding,
    so do the logits. Methods whose random numbers are spent on one label after the other have
    other ones then, and just have to run.
    """
    memory = ['--buffer_size', '20'] if '--buffer_size' in known_flags(method) else []
    calm = [] if method in ('gdumb', *FROZEN) else ['--lr', '1e-3', '--bn', 'frozen']   # rounding stays small

    def logits(*flags, turn=False):
        model, dataset, args = start(method, '--batch_size', '12', *memory, *calm, *flags)
        if turn and hasattr(model.net, 'classifier'):
            with torch.no_grad():
                for p in model.net.classifier.parameters():
                    p.copy_(p.flip(0))
        train(model, dataset, args)
        return predictions(model, dataset), dataset.task_classes(0).tolist()
    down, first = logits('--schedule', f'split:3,order={DOWN}', turn=True)
    assert first == [6, 7, 8, 9] and torch.isfinite(down).all() and down.shape == (40, 10)
    if method not in DRAWS_BY_LABEL:
        up, first = logits('--schedule', 'split:3', '--custom_class_order', DOWN)
        assert first == [0, 1, 2, 3] and torch.allclose(up, down.flip(1), atol=1e-4)


@pytest.mark.parametrize('method', [pytest.param(name, marks=pytest.mark.slow if name == 'ewc-on' else ())
                                    for name in METHODS])
def test_a_thousand_classes(start, monkeypatch, method):
    """In random order and three unequal tasks; a buffer with capacity for one
    sample of each class, and some over."""
    images, names = np.random.default_rng(0).integers(0, 256, (3000, 8, 8, 3),
                                                      np.uint8), [str(c) for c in range(1000)]
    many = readers.Images(images[:2000], np.repeat(np.arange(1000), 2), images[2000:], np.arange(1000), names)
    monkeypatch.setattr(readers, 'digits', lambda: many)
    memory = ['--buffer_size', '1100'] if '--buffer_size' in known_flags(method) else []
    model, dataset = run(start, method, '--schedule', 'split:3,order=random', '--batch_size', '200', *memory)
    assert sorted(len(dataset.task_classes(t)) for t in range(3)) == [333, 333, 334] and kept(model) <= 1100
    logits = predictions(model, dataset)
    assert logits.shape == (1000, 1000) and not torch.isnan(logits).any()


def test_all_methods_take_the_same_values_of_their_files_by_default(parse):
    """Of models/config: none but those that a file has for every run; `--model_config best` is to be asked for."""
    assert {parse(method, *(['--lr', '1'] if method == 'sgd' else []), *(['--buffer_size', '9'] if '--buffer_size' in known_flags(method) else [])).model_config
            for method in METHODS} == {None}


@pytest.mark.parametrize('method', METHODS)
def test_half_of_the_labels_may_be_missing(start, method):
    """Four of the eight samples of a class have one; only these can be in the buffer."""
    model, dataset = run(start, method, *SPLIT, '--label_perc', '0.5')
    assert torch.isfinite(predictions(model, dataset)).all() and kept(model) <= BUFFER
    if hasattr(model, 'buffer') and method != 'der':                        # DER keeps no labels
        assert set(model.buffer.get_all_data()[1].tolist()) <= set(range(10))


@pytest.mark.parametrize('method', METHODS)
def test_a_network_may_have_more_outputs_than_there_are_classes(start, method):
    """`--num_classes`; those that no class has are never predicted. Methods whose
    losses count the classes refuse it."""
    if 'num_classes' in models.get_model_class(method).REFUSED_FLAGS:
        with refused('--num_classes', method):
            start(method, '--num_classes', '13', '--n_splits', '2')
        return
    model, dataset, args = start(method, '--num_classes', '13', '--n_splits', '2')
    assert model.net.classifier.out_features == 13
    row = train(model, dataset, args)
    assert 0 <= row['task2'] <= 100 and row['num_classes'] == 13


def test_fewer_outputs_than_classes_are_refused(start):
    with refused('--num_classes 9', '10 classes'):
        start('sgd', '--lr', '0.1', '--num_classes', '9')


# -- what a method sees, keeps and leaves alone
# ------------------------------------------------------------------------

@pytest.mark.parametrize('method', METHODS)
def test_memory_is_bounded_inputs_stay_as_they_are_and_online_methods_see_each_sample_once(start, method):
    memory, seen = ['--buffer_size', '7'] if '--buffer_size' in known_flags(method) else [], []

    def watch(model, dataset):
        observe = model.observe

        @functools.wraps(observe)
        def watched(inputs, labels, not_aug_inputs, **more):
            given = inputs, labels, not_aug_inputs
            before = [x.clone() for x in given]
            out = observe(*given, **more)
            assert all(torch.equal(a, b) for a, b in zip(before, given))
            assert hasattr(model, 'learner') or kept(model) <= 7
            images = not_aug_inputs * 255 if not_aug_inputs.is_floating_point() else not_aug_inputs
            seen.extend(image.round().to(torch.uint8).numpy().tobytes() for image in images)
            return out
        model.observe = watched
        watch.images = dataset.images.train.copy(), dataset.images.test.copy()
    model, dataset = run(start, method, *SPLIT, *memory, before=watch)
    assert seen and kept(model) <= 7
    assert all(np.array_equal(a, b) for a,
               b in zip(watch.images, (dataset.images.train, dataset.images.test)))
    if method not in OFFLINE:
        assert len(seen) == len(set(seen)) == 80
        with refused('--n_epochs 2', 'once'):
            start(method, '--n_epochs', '2')


@pytest.mark.parametrize('method', METHODS)
def test_no_method_sees_labels_of_the_future(start, method):
    """With the labels of the last task shuffled and its images inverted, all is as before up to that task."""
    def poison(model, dataset):
        rows = dataset.schedule.task(2)[0]
        dataset.train_labels = dataset.train_labels.copy()
        dataset.train_labels[rows] = np.random.default_rng(0).permutation(dataset.train_labels[rows])
        train_images = dataset.images.train.copy()
        train_images[rows] = 255 - train_images[rows]
        dataset.images = dataset.images._replace(train=train_images)
    flags = *SPLIT, '--stop_after', '2'
    assert torch.equal(predictions(*run(start, method, *flags)),
                       predictions(*run(start, method, *flags, before=poison)))


@pytest.mark.parametrize('method', METHODS)
def test_a_saved_and_reloaded_method_predicts_the_same(start, method):
    """Through a file that holds plain data only, halfway through the stream and at its end."""
    for stop_after in ([], ['--stop_after', '2']):
        model, dataset = run(start, method, *SPLIT, *stop_after)
        expected, file = predictions(model, dataset), io.BytesIO()
        torch.save(model_state(model), file)
        file.seek(0)
        again, dataset, _ = start(method, *SPLIT)
        load_model_state(again, torch.load(file, weights_only=True))
        assert again.current_task == (2 if stop_after else 3) and kept(again) == kept(model)
        assert torch.equal(predictions(again, dataset), expected)


@pytest.mark.parametrize('method, flags, said', [
    ('joint', [], 'final predictor'), ('gdumb', [], '--fit_every_task 2'), ('scroll', [], '--adapt_every_task 2'),
    ('gdumb', ['--fit_every_task', '2'], ''), ('scroll', ['--adapt_every_task', '1'], ''), ('scroll', ['--adaptation', 'none'], ''),
    ('joint', ['--inference_only', '1'], ''), ('er', [], '')])
def test_a_run_that_stops_before_its_final_predictor_says_so(start, capsys, method, flags, said):
    warn_once.cache_clear()
    run(start, method, *SPLIT, '--stop_after', '2', *flags)
    warned = capsys.readouterr().err
    assert warned.count('--stop_after 2') == bool(said) and said in warned


@pytest.mark.parametrize('method', METHODS)
def test_a_run_depends_on_its_seed_and_on_nothing_else(start, method):
    def result(seed):
        torch.rand(seed + 1), np.random.rand(seed + 1)                   # the global generators are elsewhere
        return predictions(*run(start, method, *SPLIT, '--seed', str(seed)))
    assert torch.equal(result(0), result(0))
    if method != 'scroll':
        assert not torch.equal(result(0), result(1))


@pytest.mark.parametrize('method', METHODS)
def test_each_method_s_row_says_which_backbone_it_began_with(start, method, tiny_weights):
    """The same weights, the same digest, whatever the method then made of them."""
    about = weights.load(tiny_weights)
    net = get_backbone(argparse.Namespace(backbone=about.backbone, num_classes=3, **about.options))
    about.load_into(net)
    assert state_digest(net) == train(*start(method, '--n_splits', '2'))['psi_digest']


# -- limits, and learning
# ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize('words', [
    'er --buffer_size 0', 'der --alpha 0', 'derpp --alpha 0 --beta 0', 'agem --n_splits 1',
    'gem --n_splits 1',
    'mir --n_splits 1', 'er-ace --buffer_size 0 --use_custom_classifier 0', 'ewc-on --e_lambda 0',
    'ewc-on --n_splits 1',
    'joint --n_splits 1', 'joint --n_splits 1 --lr_scheduler multisteplr --lr_milestones 1 --n_epochs 2',
    'joint --n_splits 1 --batch_size 79', 'joint --n_splits 1 --debug_mode 1',
    'joint --n_splits 1 --label_perc 0.5'])
def test_without_its_own_term_a_method_is_sgd_to_the_last_bit(start, words):
    """A weight of zero, no buffer, or no past: the same weights. Passes of their
    own move no batch statistics here."""
    method, *flags = words.split()
    common = ['--bn', 'frozen', '--lr', '0.05',
              *(['--batch_size', '12'] if '--batch_size' not in flags else []),
              *(['--n_splits', '3'] if '--n_splits' not in flags else [])]
    own = {'--alpha', '--beta', '--e_lambda', '--buffer_size', '--use_custom_classifier'}
    shared = [word for i, word in enumerate(flags) if word not in own and flags[i - 1] not in own]
    nets = [run(start, name, *common, *more)[0].net for name, more in ((method, flags), ('sgd', shared))]
    assert all(torch.equal(a, b) for a,
               b in zip(nets[0].state_dict().values(), nets[1].state_dict().values(), strict=True))


@pytest.mark.parametrize('words', ['er', 'der --alpha 0.5', 'derpp --alpha 0.5 --beta 0',
                                   'derpp --alpha 0 --beta 0.5', 'agem', 'gem', 'mir', 'er-ace', 'ewc-on',
                                   'joint'])
def test_with_it_it_is_not(start, words):
    method, *flags = words.split()
    nets = [run(start, name, '--lr', '0.05', *SPLIT, *more)[0].net for name,
            more in ((method, flags), ('sgd', []))]
    assert not torch.equal(*(net.get_params() for net in nets))


@pytest.mark.parametrize('method', ['bic', 'gem', 'icarl'])
def test_a_memory_that_is_shared_out_is_full_and_has_equal_shares(start, method):
    model, dataset = run(start, method, *SPLIT, '--permute_classes', '1', '--buffer_size', '31')
    counts = torch.bincount(model.buffer.labels[:len(model.buffer)], minlength=10)
    assert sorted(counts.tolist()) == [3] * 9 + [4]


LEARNING = {'scroll': ['--iterations', '0', '--model_config', 'base'], 'icarl': ['--lr', '0.5'],
            'gem': ['--buffer_size', '20'],
            'gdumb': ['--fitting_epochs', '8', '--buffer_size', '400'],
            'ens': ['--lr', '0.01', '--n_classifiers', '64', '--top_k', '8']}


@pytest.mark.slow
@pytest.mark.parametrize('method', METHODS)
def test_each_method_learns(parse, monkeypatch, tmp_path, method):
    """From all real digits at once, with the shipped backbone at 24 pixels; chance is 10 %."""
    monkeypatch.undo()
    scheduled_dataset._read_once.cache_clear()
    flags = ['--weights', 'compact', '--input_size', '24', '--schedule', 'iid', '--batch_size', '16',
             *LEARNING.get(method, [])]
    flags += ['--n_epochs', '1'] if method in OFFLINE else []
    flags += ['--lr', '0.03'] if method not in ('scroll', 'gdumb', 'ens', 'icarl') else []
    if '--buffer_size' in known_flags(method) and '--buffer_size' not in flags:
        flags += ['--buffer_size', '100']
    assert train(*initialize(parse(method, *flags, base_path=tmp_path)))['final_accuracy'] > 40
