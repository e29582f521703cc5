"""The command line: groups of flags, and how a run's arguments are put together.

Strongest first: command line, model config (`models/config/<model>.yaml`), the model's `get_parser` -> `set_defaults`,
data-set config (`datasets/configs/<dataset>/<name>.yaml`), the data set's own defaults, the defaults below.
Nothing here imports torch: `--help` answers at once.
"""
import argparse
import difflib
import inspect
import math
from argparse import Namespace  # noqa: F401  re-exported: model files take it from here
from pathlib import Path

from utils import binary_to_boolean_type
from utils.errors import UserError
from utils.plugins import ROOT, nearest, normalise

__all__ = ('ArgumentParser', 'Namespace', 'ContinualModel', 'binary_to_boolean_type', 'add_rehearsal_args',  # noqa: F822  lazily
           'add_experiment_args', 'add_management_args')
HELP = ('-h', '--help')
OPTIMISERS = ('sgd', 'adam', 'adamw')


def __getattr__(name: str):
    """`from utils.args import *` in files written for Mammoth is to give the base class of methods, too."""
    if name == 'ContinualModel':
        from models.utils.continual_model import ContinualModel
        return ContinualModel
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Says the default of each flag that has one, as it stands after models, data sets and configs had their say."""

    def __init__(self, prog):
        super().__init__(prog, max_help_position=36, width=120)

    def _get_help_string(self, action):
        text = action.help or ''
        hidden = action.default is None or action.default is False or action.default in ([], argparse.SUPPRESS)
        if hidden or 'default' in text or not action.option_strings:
            return text
        return f"{text} (default: {str(action.default).replace('%', '%%')})".strip()


class ArgumentParser(argparse.ArgumentParser):
    """argparse with underscored flags only, no abbreviations, and errors as `UserError` (one line, exit code 2)."""

    def __init__(self, *args, **kwargs):
        kwargs.setdefault('allow_abbrev', False)
        kwargs.setdefault('formatter_class', _HelpFormatter)
        super().__init__(*args, **kwargs)

    def error(self, message):
        raise UserError(message)

    def parse_args(self, args=None, namespace=None):
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            flag = unknown[0].split('=')[0]
            known = [o for action in self._actions for o in action.option_strings]
            close = difflib.get_close_matches(flag.replace('-', '_').replace('__', '--', 1), known, n=1)
            raise UserError(f"{unknown[0]}: no such flag here" + (f'; did you mean {close[0]}?' if close else '; see --help'))
        return parsed


def whole(least: int = 0, most: int = None):
    """Command-line type: a whole number of at least `least`, and at most `most`."""
    def number(text):
        try:
            value = int(str(text))
        except ValueError:
            raise argparse.ArgumentTypeError(f'{text!r} is not a whole number') from None
        if value < least:
            raise argparse.ArgumentTypeError(f'{value} is too small: expected at least {least}')
        if most is not None and value > most:
            raise argparse.ArgumentTypeError(f'{value} is too large: expected at most {most}')
        return value
    return number


def real(least: float = -math.inf, positive: bool = False):
    """Command-line type: a finite number of at least `least`, or above zero."""
    def number(text):
        try:
            value = float(text)
        except (TypeError, ValueError):
            raise argparse.ArgumentTypeError(f'{text!r} is not a number') from None
        if not math.isfinite(value) or value < least or (positive and value <= 0):
            expected = 'a number above 0' if positive else 'a finite number' if least == -math.inf else f'at least {least:g}'
            raise argparse.ArgumentTypeError(f'{text}: expected {expected}')
        return value
    return number


def share(text) -> float:
    """Command-line type: a number from 0 to 1."""
    value = real(0)(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f'{text}: expected a share from 0 to 1')
    return value


def noise_type(text: str) -> str:
    """Command-line type: `sym`, `symm` and `asym`, `asymm` are short for the choices."""
    return {'sym': 'symmetric', 'symm': 'symmetric', 'asym': 'asymmetric', 'asymm': 'asymmetric'}.get(text, text)


def add_selection_args(parser) -> None:
    """What to run: model, data set, backbone, weights and their configs."""
    group = parser.add_argument_group('what to run')
    group.add_argument('--model', required=True, help='method; see the end of --help')
    group.add_argument('--dataset', required=True, help='data set; see the end of --help')
    group.add_argument('--backbone', help='architecture (default: what the weights were made for)')
    group.add_argument('--weights', help="pre-trained psi: a shipped name, a file, or 'none' to start from scratch "
                                         '(default: compact)')
    group.add_argument('--model_config', choices=('default', 'base', 'best'),
                       help='which values of models/config/<model>.yaml to take')
    group.add_argument('--load_best_args', action='store_true', help='earlier name of --model_config best')
    group.add_argument('--dataset_config', help='name of a file in datasets/configs/<dataset>/')


def add_experiment_args(parser) -> None:
    """How gradient-based methods train."""
    group = parser.add_argument_group('training')
    group.add_argument('--lr', type=real(0), required=True, help='learning rate')
    group.add_argument('--batch_size', type=whole(1), help='samples a loader batch')
    group.add_argument('--n_epochs', type=whole(0), help='passes over each task')
    group.add_argument('--optimizer', choices=OPTIMISERS, default='sgd')
    group.add_argument('--optim_wd', type=real(0), default=0.0, help='weight decay')
    group.add_argument('--optim_mom', type=real(0), default=0.0, help='momentum (sgd)')
    group.add_argument('--optim_nesterov', type=binary_to_boolean_type, default=False, help='Nesterov momentum (sgd)')
    group.add_argument('--drop_last', type=binary_to_boolean_type, default=False, help='drop incomplete training batches')
    group.add_argument('--lr_scheduler', choices=('multisteplr', 'cosine'), help='of each task')
    group.add_argument('--scheduler_mode', choices=('epoch', 'iter'), default='epoch', help='when the scheduler steps')
    group.add_argument('--lr_milestones', type=whole(1), nargs='+', default=[], help='steps at which multisteplr decays')
    group.add_argument('--sched_multistep_lr_gamma', type=real(0), default=0.1, help='factor of multisteplr')
    group.add_argument('--bn', choices=('train', 'frozen'), default='train',
                       help='batch norms: statistics of the batch, or those that the network came with')


def add_stream_args(parser) -> None:
    """What flags do to the data of any data set."""
    group = parser.add_argument_group('data')
    group.add_argument('--joint', type=int, choices=(0, 1), default=0, help='all classes as one task')
    group.add_argument('--custom_class_order', help='the classes in order of arrival, joined by - or ,')
    group.add_argument('--custom_task_order', help='the tasks in order of arrival, joined by - or ,')
    group.add_argument('--validation', type=real(0), nargs='?', const=10.0, default=0.0,
                       help='percent of each class held out from training, and evaluated on in place of the test set')
    group.add_argument('--validation_mode', choices=('current', 'complete'), default='current',
                       help='complete: held-out samples of all classes so far')
    group.add_argument('--label_perc', '--label_perc_by_task', '--lpt', dest='label_perc', type=share, default=1.0,
                       help='share of labelled samples of each task; the others have label -1')
    group.add_argument('--label_perc_by_class', '--lpc', dest='label_perc_by_class', type=share, default=1.0,
                       help='share of labelled samples of each class')
    group.add_argument('--noise_type', type=noise_type, choices=('symmetric', 'asymmetric'), default='symmetric',
                       help='how wrong labels are drawn')
    group.add_argument('--noise_rate', type=share, default=0.0, help='share of wrong labels')
    group.add_argument('--disable_noisy_labels_cache', type=binary_to_boolean_type, default=False,
                       help='draw wrong labels anew instead of keeping them in a file')
    group.add_argument('--cache_path_noisy_labels', default='noisy_labels', help='below base_path')
    group.add_argument('--num_workers', type=whole(0), help='processes that load data of foreign make (default: none)')


def add_fitting_args(parser) -> None:
    """How long a task is trained."""
    group = parser.add_argument_group('how long')
    group.add_argument('--fitting_mode', choices=('epochs', 'iters', 'time', 'early_stopping'), default='epochs',
                       help='until n_epochs, n_iters, fitting_minutes, or no improvement on the newest task')
    group.add_argument('--n_iters', type=whole(1), help='batches a task (--fitting_mode iters)')
    group.add_argument('--fitting_minutes', type=real(positive=True), help='minutes a task (--fitting_mode time)')
    group.add_argument('--early_stopping_patience', type=whole(1), default=5, help='evaluations without improvement')
    group.add_argument('--early_stopping_metric', choices=('loss', 'accuracy'), default='loss')
    group.add_argument('--early_stopping_freq', type=whole(1), default=1, help='epochs between evaluations')
    group.add_argument('--early_stopping_epsilon', type=real(0), default=1e-6, help='smallest improvement that counts')
    group.add_argument('--start_from', type=whole(0), help='first task that is trained, from 0; earlier ones only begin and end')
    group.add_argument('--stop_after', type=whole(1), help='number of the last task')
    group.add_argument('--inference_only', type=binary_to_boolean_type, default=False, help='train nothing, evaluate')
    group.add_argument('--debug_mode', type=binary_to_boolean_type, default=False, help='a few batches of each pass')
    group.add_argument('--eval_future', type=binary_to_boolean_type, default=False, help='evaluate on tasks to come, too')


def add_tracking_args(parser) -> None:
    """Weights & Biases and TensorBoard, and flags of earlier versions of Mammoth, which are understood."""
    group = parser.add_argument_group('tracking')
    group.add_argument('--wandb_entity', help='with wandb_project: log to Weights & Biases')
    group.add_argument('--wandb_project')
    group.add_argument('--wandb_name', help='of the run')
    on_off = dict(type=binary_to_boolean_type, nargs='?', const=True)
    group.add_argument('--tensorboard', default=False, help='log to <results>/tensorboard', **on_off)
    group.add_argument('--nowand', help='1: no Weights & Biases, whatever else is said', **on_off)
    group.add_argument('--ignore_other_metrics', help='the reverse of --enable_other_metrics', **on_off)
    for flag in ('--csv_log', '--force_compat'):            # always so here
        group.add_argument(flag, help=argparse.SUPPRESS, default=argparse.SUPPRESS, **on_off)


def add_management_args(parser) -> None:
    """Seeds, folders, device, what is written and shown."""
    group = parser.add_argument_group('management')
    group.add_argument('--seed', type=whole(0, 2 ** 63 - 1), default=0, help='every random stream derives from it')
    group.add_argument('--permute_classes', type=binary_to_boolean_type, default=False, help='rename the classes at random')
    group.add_argument('--base_path', default='./data/', help='data sets, results and caches')
    group.add_argument('--results_path', default='results/', help='below base_path')
    group.add_argument('--device', help="'cpu', 'cuda' or the number of a GPU (default: a GPU if there is one)")
    group.add_argument('--notes', help='free text, kept in the results')
    group.add_argument('--eval_epochs', type=whole(1), help='also evaluate every so many epochs')
    group.add_argument('--enable_other_metrics', type=binary_to_boolean_type, default=False,
                       help='forward and backward transfer, forgetting')
    group.add_argument('--non_verbose', type=binary_to_boolean_type, nargs='?', const=True, default=False,
                       help='no progress bars')
    group.add_argument('--disable_log', type=binary_to_boolean_type, default=False, help='write no results files')
    group.add_argument('--num_threads', type=whole(1), help='CPU threads (default: torch decides)')
    group.add_argument('-O', '--code_optimization', type=int, choices=(0, 1, 2, 3), default=0,
                       help='1: TF32, 2: bfloat16 products, 3: also torch.compile')
    group.add_argument('--distributed', choices=('no', 'dp', 'ddp'), default='no', help='dp: batches split among GPUs')


def add_rehearsal_args(parser) -> None:
    """Replay buffer."""
    group = parser.add_argument_group('replay buffer')
    group.add_argument('--buffer_size', type=whole(0), required=True, help='samples in the buffer, all classes together')
    group.add_argument('--minibatch_size', type=whole(1), help='samples replayed at once; where nothing is said, batch_size')


def base_parser(**kwargs) -> ArgumentParser:
    """The flags that every run has."""
    parser = ArgumentParser(prog='main.py', description='Continual learning under any schedule.', **kwargs)
    add_selection_args(parser)
    add_stream_args(parser)
    add_experiment_args(parser)
    add_fitting_args(parser)
    add_management_args(parser)
    add_tracking_args(parser)
    return parser


def check_repeated(argv) -> None:
    """Refuse a flag given twice: which of the values was meant?"""
    flags = [item.split('=')[0] for item in argv if item.startswith('--')]
    for flag in flags:
        if flags.count(flag) > 1:
            raise UserError(f'{flag} is given {flags.count(flag)} times: give it once')


def apply_defaults(parser: ArgumentParser, values: dict, source: str) -> None:
    """Make `values` the defaults of flags that exist, passed through each flag's type.

    Raises:
        UserError: no such flag, or a value that its type or choices refuse; `source` is named.
    """
    actions = {action.dest: action for action in parser._actions}
    for name, value in values.items():
        if name not in actions:
            raise UserError(f'{source}: {name} is not a flag of this run; {nearest(name, actions)}')
        action = actions[name]
        value = None if value == 'None' else value
        if value is not None and isinstance(value, list) != (action.nargs is not None):
            raise UserError(f"{source}: {name}: {value!r}: expected {'a list' if action.nargs else 'one value'}")
        try:
            if action.type is not None and value is not None:
                items = [action.type(int(v) if isinstance(v, bool) else v) for v in (value if action.nargs else [value])]
                value = items if action.nargs else items[0]
        except (argparse.ArgumentTypeError, TypeError, ValueError) as error:
            raise UserError(f'{source}: {name}: {error}') from error
        if action.choices and value is not None and value not in action.choices:
            raise UserError(f'{source}: {name} {value!r}: expected one of {", ".join(map(str, action.choices))}')
        parser.set_defaults(**{name: value})


def add_model_args(parser: ArgumentParser, model) -> dict:
    """Let a method add its flags; returns the defaults it sets.

    `get_parser(parser)` adds to what it is given, and may return it, another parser or nothing; in files written for earlier
    versions of Mammoth `get_parser()` returns a parser of its own. Defaults for flags that do not exist stay in the parser.
    """
    before = dict(parser._defaults)
    added = model.get_parser(parser) if inspect.signature(model.get_parser).parameters else model.get_parser()
    if added is not None and added is not parser:
        known = {action.dest for action in parser._actions}
        for action in added._actions:
            if action.dest not in known and action.option_strings:
                parser._add_action(action)
        parser._defaults.update(added._defaults)
    flags = {action.dest for action in parser._actions}
    return {k: v for k, v in parser._defaults.items() if before.get(k, parser) is not v and k in flags}


def settle(args) -> None:
    """Fill in what follows from other arguments: earlier names of flags, what is always there for foreign methods."""
    if args.ignore_other_metrics is not None:
        args.enable_other_metrics = not args.ignore_other_metrics
    args.nowand = int(bool(args.nowand) or not (args.wandb_entity and args.wandb_project))
    if args.distributed == 'ddp':
        raise UserError('--distributed ddp: streams are learned by one process; use dp, or leave the flag out')
    if args.start_from is not None and args.stop_after is not None and args.start_from >= args.stop_after:
        raise UserError(f'--start_from {args.start_from} --stop_after {args.stop_after}: nothing is left to train')


def parse_known(parser: ArgumentParser, cmd) -> dict:
    """What the command line and the defaults so far say; required flags may be missing."""
    required = [action for action in parser._actions if action.required]
    for action in required:
        action.required = False
    known = vars(parser.parse_args([item for item in cmd if item not in HELP]))
    for action in required:
        action.required = True
    return known


def relax_required(parser: ArgumentParser) -> None:
    """A required flag that has got a default is no longer required."""
    for action in parser._actions:
        if action.required and parser.get_default(action.dest) is not None:
            action.required = False


def read_yaml(path: Path) -> dict:
    """A YAML mapping; UserError if the file is damaged or something else."""
    import yaml
    try:
        content = yaml.safe_load(path.read_text(encoding='utf-8')) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f'{path}: cannot be read as YAML ({" ".join(str(error).split())})') from error
    if not isinstance(content, dict):
        raise UserError(f'{path}: expected a mapping, found {type(content).__name__}')
    return content


def model_config(model: str, which: str, known: dict) -> tuple:
    """The values of `models/config/<model>.yaml` for a run of which `known` arguments are given, and the file's name.

    The file holds `default:` (always taken) and `best:`, a list of rules `{when: {...}, set: {...}}`; of these, for
    `which='best'`, each whose conditions hold is applied, later ones over earlier ones. A condition is a value, or
    `{min: a, max: b}`. In the place of rules there may be Mammoth's sections by data set and buffer size.
    """
    path = next((p for p in sorted((ROOT / 'models' / 'config').glob('*.yaml'))
                 if p.stem.replace('_', '-') == model.replace('_', '-')), None)
    if path is None or which == 'base':
        return {}, ''
    content, source = read_yaml(path), str(path.relative_to(ROOT))
    values = content.get('default') or {}
    if not isinstance(values, dict):
        raise UserError(f'{source}: default: expected a mapping of flags, found {values!r}')
    best = (content.get('best') or []) if which == 'best' else []
    try:
        found = _from_sections(best, known) if isinstance(best, dict) else _from_rules(best, known)
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f'{source}: best must be a list of {{when: ..., set: ...}} ({error!r})') from error
    return {**values, **found}, source


def _from_rules(rules: list, known: dict) -> dict:
    """The values of all rules whose conditions hold."""
    holding = (rule['set'] for rule in rules if all(_holds(c, known.get(name)) for name, c in rule['when'].items()))
    return {name: value for values in holding for name, value in values.items()}


def _from_sections(best: dict, known: dict) -> dict:
    """Mammoth's form, `{dataset: {flag: value, ..., buffer size: {flag: value, ...}}}`: the more special section wins."""
    section = next((part for name, part in best.items() if normalise(name) == known.get('dataset')), None) or {}
    values = {name: value for name, value in section.items() if not isinstance(value, dict)}
    return {**values, **next((part for size, part in section.items() if str(size) == str(known.get('buffer_size'))), {})}


def _holds(condition, value) -> bool:
    if isinstance(condition, dict):
        return value is not None and condition.get('min', -math.inf) <= value <= condition.get('max', math.inf)
    return condition == value


def dataset_config(dataset: str, which) -> tuple:
    """The values, and the file's name, of `datasets/configs/<dataset>/<which>.yaml`; `which` None: `default.yaml`, if any."""
    folder = ROOT / 'datasets' / 'configs' / dataset
    path = folder / f"{which or 'default'}.yaml"
    if not path.is_file():
        if which is None:
            return {}, ''
        have = ', '.join(sorted(p.stem for p in folder.glob('*.yaml'))) or 'none'
        raise UserError(f'--dataset_config {which}: {dataset} has no such config; it has: {have}')
    return read_yaml(path), str(path.relative_to(ROOT))
