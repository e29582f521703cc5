"""Flags of Mammoth: what they mean, what they need, what is refused, and what is warned of because
it has no effect.
"""

import pytest

from bench.cli.parsing import parse_args
from core.environment import warn_once
from tests.conftest import refused, words_of


@pytest.fixture
def sgd(parse):
    """sgd(*flags): arguments of an SGD run."""
    return lambda *flags: parse('sgd', '--lr 0.1', *flags)


@pytest.mark.parametrize(
    'flags, name, value',
    [
        ('--validation', 'validation', 10),
        ('--lpt 0.5', 'label_perc', 0.5),
        ('--lpc 0.25', 'label_perc_by_class', 0.25),
        ('--noise_rate 0 --noise_type sym', 'noise_type', 'symmetric'),
        ('-O3', 'code_optimization', 3),
        ('', 'nowand', 1),
        ('--non_verbose --seed 3', 'non_verbose', True),
    ],
)
def test_values(flags, name, value):
    args = parse_args(words_of('--model sgd --dataset seq-digits --lr 1 --weights none', flags))
    assert getattr(args, name, None) == value


@pytest.mark.parametrize(
    'first, second',
    [
        ('--label_perc=0.5', '--lpt=0.5'),
        ('--load_best_args', '--model_config=base'),
        ('-O1', '-O2'),
        ('--head=ncc', '--predictor=ncc'),
    ],
)
def test_one_thing_said_by_two_names(first, second):
    with refused('-O' if second[:2] == '-O' else second.split('=')[0], '2 times'):
        parse_args(words_of('--model scroll --dataset seq-digits --weights none', first, second))


@pytest.mark.parametrize(
    'flags, needed',
    [
        ('--n_iters 3', '--fitting_mode iters'),
        ('--fitting_mode iters --n_iters 3 --n_epochs 2', '--fitting_mode epochs'),
        ('--early_stopping_patience 3', '--fitting_mode early_stopping'),
        ('--validation_mode complete', '--validation'),
        ('--scheduler_mode iter', '--lr_scheduler'),
        ('--optimizer adam --optim_mom 0.9', '--optimizer sgd'),
        ('--n_epochs 1 --lr_scheduler cosine', '--scheduler_mode iter'),
    ],
)
def test_flags_that_do_nothing(sgd, flags, needed, capsys):
    warn_once.cache_clear()
    sgd(flags)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f'warning: {flags.split()[-2]} has no effect')
    assert needed in line


@pytest.mark.parametrize(
    'model, flags, why',
    [
        ('gdumb', ['--buffer_size 5', '--lr 0.1'], '--maxlr'),
        ('scroll', ['--optimizer adam'], 'AdaDelta'),
        ('sgd', ['--lr 0.1', '--buffer_size 5'], 'does not declare it'),
    ],
)
def test_a_script_may_give_every_method_the_same_flags_of_training(
    parse, model, flags, why, capsys
):
    warn_once.cache_clear()
    args = parse(model, *flags)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f'warning: {flags[-1].split()[0]} has no effect')
    assert why in line
    assert model != 'sgd' or (args.buffer_size == 0 and args.key == parse(model, flags[0]).key)


@pytest.mark.parametrize(
    'flag, why',
    [
        ('--bn=frozen', 'frozen'),
        ('--batch_iterations=2', 'steps'),
        ('--drop_last=1', 'every'),
        ('--code_optimization=0', 'bit'),
        ('--num_classes=20', 'came'),
    ],
)
def test_other_flags_without_effect_on_a_method_are_refused(parse, flag, why):
    with refused(flag.split('=')[0], 'no effect', why):
        parse('scroll', flag)


@pytest.mark.parametrize(
    'flags, words',
    [
        ('--fitting_mode iters', '--n_iters'),
        ('--distributed ddp', 'ddp'),
        ('--start_from 2 --stop_after 2', '--start_from 2 --stop_after 2'),
        ('--start_from 1 --enable_other_metrics 1', '--enable_other_metrics'),
        ('--start_from 1 --joint 1', '--joint'),
        ('--label_perc 1.5', 'at most 1'),
        ('--noise_type odd --noise_rate 0.1', 'odd'),
        ('--validation -1', '-1'),
        ('--lr_scheduler multisteplr', '--lr_milestones'),
    ],
)
def test_what_cannot_be(sgd, flags, words):
    with refused(flags.split()[0], words):
        sgd(flags)


def test_icarl_has_nothing_to_stop_early_by(parse):
    with refused('early_stopping', 'exemplars'):
        parse('icarl', '--buffer_size 5 --lr 1 --fitting_mode early_stopping')


def test_what_has_an_effect_after_all(sgd):
    """A sweep of noise rates may begin with none; a cosine over epochs needs their number in a run
    of iterations.
    """
    args = sgd('--noise_rate 0 --noise_type asym --validation 0 --validation_mode complete')
    assert (args.noise_rate, args.validation) == (0, 0)
    assert sgd('--fitting_mode iters --n_iters 3 --n_epochs 2 --lr_scheduler cosine').n_epochs == 2


def test_force_compat_lets_a_method_run_that_wants_to_be_told_of_tasks(parse):
    flags = ['--buffer_size 5 --lr 1 --schedule gaussian']
    with refused('--model gem', 'tasks'):
        parse('gem', *flags)
    assert parse('gem', *flags, '--force_compat').force_compat is True
    with refused('--model gem'):
        parse('gem', *flags, '--force_compat 0')
