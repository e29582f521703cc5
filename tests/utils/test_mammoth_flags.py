"""docs/mammoth-flags.md: each flag of Mammoth is there, and what the page says of
it is what the command line does."""

import functools
import itertools
import re
import shlex

import pytest

from bench.cli.parsing import parse_args
from core.plugins import normalise
from scroll.ground.errors import InputError
from tests.conftest import ROOT, refused

REGISTERED = """
    model dataset backbone load_best_args loadcheck dataset_config model_config lr batch_size
    label_perc label_perc_by_task lpt label_perc_by_class lpc joint eval_future custom_task_order
    custom_class_order validation validation_mode fitting_mode n_epochs n_iters
    early_stopping_patience early_stopping_metric early_stopping_freq early_stopping_epsilon
    optimizer optim_wd optim_mom optim_nesterov drop_last lr_scheduler scheduler_mode
    lr_milestones sched_multistep_lr_gamma noise_type noise_rate disable_noisy_labels_cache
    cache_path_noisy_labels seed permute_classes base_path results_path checkpoint_path device
    notes eval_epochs non_verbose disable_log num_workers enable_other_metrics debug_mode
    inference_only code_optimization distributed savecheck save_checkpoint_mode ckpt_name
    start_from stop_after save_after_interrupt wandb_name wandb_entity wandb_project buffer_size
    minibatch_size num_classes num_filters transform_type tensorboard nowand force_compat alpha
    beta task_free use_custom_classifier maxlr minlr fitting_epochs cutmix_alpha bic_epochs temp
    valset_split wd_reg distill_after_bic compute_theoretical_best use_original_icarl_transform
    opt_wd gamma softmax_temp e_lambda
"""
ROWS = re.findall(
    r'^\| `(-\S+)` \| `([^`]+)` \| (\w+) \| ?(.*?) ?\|$',
    (ROOT / 'docs' / 'mammoth-flags.md').read_text(),
    re.M,
)
NO_BUFFER = ('lwf', 'ewc_on')


@functools.cache
def parser_of(*words):
    """Build a parser with the flags of these methods, data sets and backbones."""
    return parse_args(words, return_parser_only=True)


def parser_and_arguments(words: list):
    """Parse a run with these words, and what else it needs."""
    given = dict(zip(words, [*words[1:], '']))
    fixed = {'--model': 'derpp', '--dataset': 'seq-digits', '--buffer_size': '20', '--lr': '0.1'}
    if given.get('--model') in NO_BUFFER:
        fixed.pop('--buffer_size')
    if given.get('--model') == 'gdumb':
        fixed.pop('--lr')
    words = [
        *(word for flag, value in fixed.items() if flag not in words for word in (flag, value)),
        *words,
    ]
    which = [
        word
        for pair in itertools.pairwise(words)
        if pair[0] in ('--model', '--dataset', '--backbone')
        for word in pair
    ]
    return parser_of(*which), parse_args(words)


def test_the_page_has_every_flag_once():
    flags = [flag for flag, *_ in ROWS]
    assert sorted(flags) == sorted([f'--{name}' for name in REGISTERED.split()] + ['-O'])
    assert {state for *_, state, _ in ROWS} == {'works', 'differs', 'refused'}
    assert all(flag in words and (here or state != 'differs') for flag, words, state, here in ROWS)


@pytest.mark.parametrize(
    'flag, words, state', [row[:3] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_a_flag_is_what_the_page_says(flag, words, state):
    """It has the value that it was given, or one line that names it."""
    words = shlex.split(words)
    if state == 'refused':
        with pytest.raises(InputError) as caught:
            parser_and_arguments(words)
        assert flag in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1
        return
    parser, args = parser_and_arguments(words)
    action = parser._option_string_actions[flag]
    after = words[words.index(flag) + 1 :]
    values = after[: next((i for i, word in enumerate(after) if word.startswith('--')), None)]
    expected = [action.type(value) if action.type else value for value in values] or [action.const]
    if action.dest in ('model', 'dataset', 'backbone'):
        expected = [normalise(expected[0])]
    assert getattr(args, action.dest) == (expected if action.nargs == '+' else expected[0])


def test_mammoths_defaults_in_place_of_ours(command_line, small_digits, tmp_path, monkeypatch):
    """A run says in a line what differs, and the flag takes theirs."""

    def given(line='', model='er_ace'):
        return parse_args(f'--model {model} --dataset seq-cifar100 --buffer_size 20 {line}'.split())

    ours = given()
    theirs = given('--lr 0.1 --mammoth_defaults 1')
    for word in (
        'weights compact (none)',
        'lr 0.01 (required)',
        'task_free True (False)',
        'n_epochs 1 (of the data set)',
        'lr_milestones',
    ):
        assert word in ours.differs
    assert theirs.differs == ''
    expected = {
        'weights': 'none',
        'backbone': 'resnet18',
        'task_free': False,
        'n_epochs': 50,
        'lr_scheduler': 'multisteplr',
        'lr_milestones': [35, 45],
        'num_filters': 64,
    }
    assert vars(theirs).items() >= expected.items()
    with monkeypatch.context() as patched, refused('required: --lr'):
        patched.setenv('MAMMOTH_DEFAULTS', '1')
        assert given('--lr 0.1').lr_milestones == [35, 45]
        assert '(of the data set), lr 0.01 (required)' in given('--mammoth_defaults 0').differs
        given()
    own = given('--lr 0.1 --mammoth_defaults 1 --task_free 1 --n_epochs 2 --backbone resnet34')
    assert (own.task_free, own.n_epochs, own.backbone) == (True, 2, 'resnet34')
    gdumb = given('--mammoth_defaults 1', 'gdumb')
    assert (gdumb.fitting_epochs, gdumb.cutmix_alpha, gdumb.n_epochs, gdumb.lr) == (256, 1, 1, 0)
    assert not given(model='scroll').differs
    for model, filled in ('der', 'alpha'), ('derpp', 'alpha beta'), ('ewc_on', 'e_lambda gamma'):
        for flag in filled.split():
            value = getattr(given(model=model), flag)
            assert f'{flag} {value} (required)' in given(model=model).differs
    assert 'alpha' not in given('--alpha 0.5', 'der').differs
    der = given('--lr 0.1 --mammoth_defaults 1', 'der')
    assert 'differ: alpha 0.5 (required);' in der.differs
    assert 'mammoth_defaults' not in ours
    code, out, _ = command_line(
        '--model er --dataset seq-digits --weights none --backbone reduced-resnet18 --n_epochs 0',
        '--buffer_size 9 --base_path',
        tmp_path,
    )
    assert code == 0
    assert out.splitlines()[0].startswith(
        "Mammoth's defaults differ: lr 0.01 (required); --mammoth_defaults 1"
    )
