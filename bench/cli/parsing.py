"""How a run's arguments are put together.

Strongest first: command line, the run whose model `--loadcheck` loads, model config
(`models/config/<model>.yaml`), the model's `get_parser` -> `set_defaults`, data-set config
(`datasets/configs/<dataset>/<name>.yaml`), the data set's own defaults, the defaults of
`bench.cli.flags`. Nothing here imports torch before a model or a data set is known: `--help`
answers at once.
"""

import argparse
import inspect
import sys

from bench.cli import flags
from bench.cli.checks import check_flags, check_method, fill_in
from bench.cli.mammoth_defaults import differences, of_data, of_method, sees_once
from bench.results.keys import run_key
from core.arguments import FREE, ArgumentParser, ShortHelp, of_signature
from core.configs import dataset_config, model_config
from core.environment import warn_once
from core.mammoth import checkout, use_checkout
from core.plugins import MAMMOTH, ROOT, PluginFolder, is_shipped, keyword_flags, normalise
from scroll.ground.errors import InputError, did_you_mean
from scroll.ground.progress import Progress

HELP = ('-h', '--help', '--help_all')


def parse_args(cmd=None, return_parser_only: bool = False):
    """The run's arguments, as `Arguments`, or the parser that knows all their flags.

    What is parsed decides which further flags there are: model and data set first, then their own
    flags and config files, then backbone and weights.

    InputError: anything wrong with the command line or a config file, in one line."""
    cmd = sys.argv[1:] if cmd is None else list(cmd)
    chosen = _chosen(cmd)
    parser = base_parser()
    parser.set_defaults(model=chosen.model, dataset=chosen.dataset)
    if set(HELP) & set(cmd) and not (chosen.model and chosen.dataset):
        parser.epilog = _names()
        for action in parser._actions:  # a method may have its own --lr
            action.required = action.dest in ('model', 'dataset')
        _shorten(parser, cmd)
        parser.parse_args(cmd)  # prints and exits
    model, build, dataset = _plugins(chosen)
    dataset, usual_weights = _add_flags(parser, cmd, chosen, model, build, dataset)
    if return_parser_only:
        return parser
    _shorten(parser, cmd, model.REFUSED_FLAGS)
    given = given_flags(parser, cmd)
    args = parser.parse_args(cmd)
    args.model, args.dataset = normalise(args.model), normalise(args.dataset)
    args.backbone = normalise(args.backbone)
    args.dataset_config = chosen.dataset_config
    fill_in(args)
    check_method(model, dataset, args, given)
    check_flags(args, given)
    usual = {flag: parser.get_default(flag) for flag in given}
    usual |= {'weights': usual_weights, 'backbone': None, 'dataset_config': None}
    args.given = given
    args.differs = differences(args, model, dataset)
    args.key = run_key(args, {flag for flag in given if getattr(args, flag) != usual[flag]})
    return args


def _chosen(cmd):
    """Parse what decides which other flags there are, from the flags that every run has."""
    chosen = _parse_known(base_parser(), cmd)
    use_checkout(getattr(chosen, 'mammoth', None))
    chosen.saved = _of_checkpoint(chosen)
    for number, flag in enumerate(('model', 'dataset')):
        if not set(HELP) & set(cmd) and not getattr(chosen, flag):
            raise InputError(f'--{flag} is missing; {_names().splitlines()[number]}')
    return chosen


def _parse_known(parser, cmd) -> argparse.Namespace:
    """The flags that a parser has; none is required."""
    required = [action for action in parser._actions if action.required]
    for action in required:
        action.required = False
    known, _ = parser.parse_known_args([word for word in cmd if word not in HELP])
    for action in required:
        action.required = True
    return known


def _shorten(parser, cmd, refused=()) -> None:
    """Build what `--help` shows: common flags, and those that method, data set and backbone have of
    their own, a line each. refused: flags that the method refuses. `--help_all` shows all."""
    if set(HELP) & set(cmd) and '--help_all' not in cmd:
        rare = {
            option.lstrip('-') for option in base_parser()._option_string_actions
        } - flags.COMMON
        rare = (rare - {option.lstrip('-') for option in HELP}).union(refused)
        for action in parser._actions:
            if rare.intersection(option.lstrip('-') for option in action.option_strings):
                action.help = argparse.SUPPRESS
        parser.formatter_class = ShortHelp
        parser.usage = 'main.py --model NAME --dataset NAME [--flag ...]'


def _of_checkpoint(chosen) -> dict:
    """Defaults: arguments of the run that `--loadcheck` names, if of the same method and data."""
    if not chosen.loadcheck:
        return {}
    from bench.resume.saved_models import read

    saved = {
        name: value for name, value in read(chosen.loadcheck)['args'].items() if value is not None
    }
    for name in ('model', 'dataset'):
        given = getattr(chosen, name)
        if given and normalise(given) != normalise(saved.get(name, given)):
            return {}
    for name in ('model', 'dataset', 'dataset_config', 'weights', 'backbone'):
        setattr(chosen, name, getattr(chosen, name) or saved.get(name))
    return {name: value for name, value in saved.items() if name not in ('backbone', 'weights')}


def _plugins(chosen) -> tuple:
    """(class of the method, what builds the data set, its class or that of any)."""
    import datasets
    import models

    models.PLUGINS.check(chosen.model)
    datasets.PLUGINS.check(chosen.dataset)
    # torch: seconds
    with Progress(f'Loading {chosen.model} and {chosen.dataset}', quiet=chosen.non_verbose):
        from datasets.utils.continual_dataset import ContinualDataset

        model = models.get_model_class(chosen.model)
        build = datasets.get_dataset_class(chosen.dataset)
    return model, build, build if isinstance(build, type) else ContinualDataset


def _add_flags(parser, cmd, chosen, model, build, dataset) -> tuple:
    """Add the flags of data set, method and backbone, and set defaults, the weakest source first.
    Returns (the data set as its config file has it, weights by default); fills in `chosen`."""
    from backbone import get_backbone_class
    from datasets.utils.config import split_config
    from datasets.utils.defaults import dataset_defaults

    dataset.get_parser(parser)
    _flags_of(parser, build, 'data set')
    from_model = add_model_args(parser, model)
    own = dataset_defaults(dataset)
    mammoths = getattr(chosen, 'mammoth_defaults', False)
    if mammoths:
        from_model |= {k: v for k, v in of_method(model).items() if v is not None}
        own |= of_data(dataset)
    said = _said(parser, cmd)

    def from_model_config(defaults: dict, dataset):
        """(values, source) of the method's config file, for what the run's arguments are so far."""
        known = {action.dest: parser.get_default(action.dest) for action in parser._actions}
        known = (
            {k: None if v is argparse.SUPPRESS else v for k, v in known.items()} | defaults | said
        )
        known |= {name: normalise(known[name]) for name in ('model', 'dataset', 'backbone')}
        known['n_splits'] = dataset.get_n_splits(argparse.Namespace(**known))
        section = 'base' if mammoths and is_shipped(model) else 'default'
        return model_config(known['model'], known['model_config'] or section, known), known

    (asked, _), _ = from_model_config(own | from_model, dataset)
    name = asked.get('dataset_config')  # takes precedence, as in Mammoth
    if name and chosen.dataset_config not in (None, name):
        warn_once(
            f'the config file of {chosen.model} wants --dataset_config {name}: '
            f'{chosen.dataset_config} '
            'is not taken'
        )
    chosen.dataset_config = name or chosen.dataset_config
    values, data_file = dataset_config(normalise(chosen.dataset), chosen.dataset_config)
    constants, from_data = split_config(values)
    configured = type(dataset.__name__, (dataset,), constants)
    asked = {k: own[k] for k in own.keys() & {'weights'}} | from_data | from_model
    asked |= from_model_config(own | asked, configured)[0][0]
    about, fixed, usual = _backbone(chosen, dataset, asked, own.get('backbone', 'resnet18'))
    fixed |= {'dataset_config': chosen.dataset_config}
    _flags_of(parser, get_backbone_class(fixed['backbone']), f'backbone {fixed["backbone"]}')
    flags = {action.dest for action in parser._actions}
    if 'buffer_size' not in flags and any(
        word.partition('=')[0] == '--buffer_size' for word in cmd
    ):
        warn_once(
            f'--buffer_size has no effect: {chosen.model} does not declare it (a method '
            'with a buffer '
            'is a ReplayModel, or has add_rehearsal_args(parser) in its get_parser)'
        )
        parser.add_argument('--buffer_size', type=lambda _: 0, default=0, help=argparse.SUPPRESS)
    online = {'n_epochs': 1} if sees_once(model, mammoths) else {}
    passed_on = parser.affects()
    saved = {
        flag: value
        for flag, value in chosen.saved.items()
        if passed_on.get(flag) not in FREE | {'part', 'run'}
    }

    def take(values, source, known_flags_only=False):
        values = {k: v for k, v in values.items() if k in flags} if known_flags_only else values
        apply_defaults(parser, values | fixed, source)

    take(own, 'defaults of the data set', True)
    take(about.options if about else {}, f'--weights {chosen.weights}')
    take(from_data, data_file)
    take(
        online | {k: v for k, v in from_model.items() if k in flags}, f'defaults of {chosen.model}'
    )
    said = _said(parser, cmd)  # with those of the backbone
    (values, source), known = from_model_config({}, configured)
    take(values, source)
    take(saved, f'--loadcheck {chosen.loadcheck}', True)
    for action in parser._actions:
        action.required = action.required and parser.get_default(action.dest) is None
    if configured.is_task_free(argparse.Namespace(**known)):
        parser.set_defaults(n_epochs=1)
    return configured, usual


def _said(parser, cmd) -> dict:
    """Flag -> value, of the flags on the command line that the parser has."""
    known = vars(_parse_known(parser, cmd))
    return {flag: known[flag] for flag in given_flags(parser, cmd) if flag in known}


def _backbone(chosen, dataset, asked: dict, default: str) -> tuple:
    """(what the weights say about themselves or None, names of backbone and weights, weights by
    default).

    Fills in `chosen.weights`.

    asked: what config files and the method say. default: the data set's own backbone."""
    from backbone import PLUGINS, weights
    from models import PLUGINS as METHODS

    def unless_given(backbone):  # one that is asked for by name is made from scratch
        start = 'none' if backbone else dataset.DEFAULT_WEIGHTS or weights.DEFAULT
        return str(asked.get('weights') or start)

    wanted = chosen.backbone or asked.get('backbone')
    usual = unless_given(asked.get('backbone'))
    chosen.weights = str(chosen.weights or unless_given(wanted))
    if chosen.weights == 'none':
        name = normalise(wanted or default)
        if (
            not chosen.backbone
            and METHODS.is_theirs(chosen.model)
            and PLUGINS.offers(MAMMOTH + name)
        ):
            name = MAMMOTH + name  # the checkout's methods may reach into its networks
        return None, {'backbone': name, 'weights': 'none'}, usual
    about = weights.load(chosen.weights, tensors=False)
    if wanted and normalise(wanted) != about.backbone:
        if chosen.backbone:
            raise InputError(
                f'--backbone {chosen.backbone}: --weights {chosen.weights} are for '
                f'{about.backbone}; leave --weights out to start from scratch, or give others'
            )
        warn_once(
            f'--weights {chosen.weights} are for {about.backbone}, which takes precedence over '
            f'backbone {wanted} of a config file'
        )
    return about, {'backbone': about.backbone, 'weights': chosen.weights}, usual


def _flags_of(parser, build, title: str) -> None:
    """A flag for each keyword parameter of a signature (data set, backbone); one that is there
    serves it.
    """
    taken = {action.dest for action in parser._actions}
    new = {name: p for name, p in keyword_flags(build).items() if name not in taken}
    group = parser.add_argument_group(title) if new else None
    for name, parameter in new.items():
        required = parameter.default is parameter.empty
        group.add_argument(
            f'--{name}', **of_signature(parameter), required=required, help=f'of the {title}'
        )


def _names() -> str:
    """Names that --model, --dataset and --weights accept, read from file names and sources: no
    import.
    """
    folder = ROOT / 'backbone' / 'weights'
    shipped = sorted(
        {
            path.name.split('.')[0]
            for kind in ('safetensors', 'scales.json')
            for path in folder.glob(f'*.{kind}')
        }
    )
    lines = [
        f'{kind}s: {" ".join(PluginFolder(folder, kind).names())}'
        for folder, kind in (('models', 'model'), ('datasets', 'dataset'), ('backbone', 'backbone'))
    ]
    return '\n'.join(
        [
            *lines,
            f'weights: {" ".join(shipped)}',
            'With --model and --dataset: their flags, as --n_splits, --schedule, --buffer_size.',
        ]
    )


def base_parser(**kwargs) -> ArgumentParser:
    """The flags that every run has."""
    parser = ArgumentParser(
        prog='main.py', description='Continual learning under any schedule.', **kwargs
    )
    if parser.add_help:
        parser.add_argument(
            '--help_all', action='help', help='show every flag, and all about it, and exit'
        )
    for add in (
        flags.add_selection_args,
        flags.add_stream_args,
        flags.add_experiment_args,
        flags.add_fitting_args,
        flags.add_management_args,
        flags.add_checkpoint_args,
    ):
        add(parser)
    return parser


def given_flags(parser: ArgumentParser, argv) -> set:
    """Names (`dest`) of the flags on the command line. InputError where one is given twice, by any
    name.
    """
    found = {}
    for item in argv:
        option = item.split('=')[0] if item.startswith('--') else item[:2]  # -O3
        action = parser._option_string_actions.get(option)
        if action is not None and action.dest in found:
            raise InputError(
                f'{option} is given 2 times, before as {found[action.dest]}: give it once'
            )
        if action is not None:
            found[action.dest] = option
    return set(found)


def apply_defaults(parser: ArgumentParser, values: dict, source: str) -> None:
    """Make `values` the defaults of flags that exist, passed through each flag's type.

    InputError: no such flag, except in files of a Mammoth checkout, or a value that its type or
    choices refuse; `source` is named."""
    # of several names of a flag, the first is its own
    actions = {action.dest: action for action in reversed(parser._actions)}
    for name, value in values.items():
        if name not in actions and source.startswith(f'{checkout()}/'):
            warn_once(f'{source}: {name} is not a flag of this run, and has no effect')
            continue
        if name not in actions:
            raise InputError(
                f'{source}: {name} is not a flag of this run{did_you_mean(name, actions)}'
            )
        action = actions[name]
        if value is not None and value != 'None':
            many = action.nargs not in (None, 0, '?')
            if isinstance(value, list) != many:
                raise InputError(
                    f'{source}: {name}: {value!r}: expected {"a list" if many else "one value"}'
                )
            words = [
                int(word) if isinstance(word, bool) and action.type else word
                for word in (value if many else [value])
            ]
            try:
                items = [parser._get_value(action, word) for word in words]
                for item in items:
                    parser._check_value(action, item)
            except argparse.ArgumentError as error:
                raise InputError(f'{source}: {name}: {error.message}') from error
            default = items if many else items[0]
        parser.set_defaults(**{name: None if default == 'None' else default})


def add_model_args(parser: ArgumentParser, model) -> dict:
    """Let a method add its flags; returns the defaults it sets.

    `get_parser(parser)` adds to what it is given, and may return it, another parser or nothing; in
    files
    written for earlier versions of Mammoth `get_parser()` returns a parser of its own. Some of
    these flags may still be to come."""
    before = dict(parser._defaults)
    get_parser = model.get_parser
    own = any(
        'get_parser' in vars(kind) for kind in model.__mro__ if kind.__module__ == model.__module__
    )
    if not own:  # the oldest files have a function in the place of a method
        get_parser = getattr(sys.modules.get(model.__module__), 'get_parser', get_parser)
    try:
        added = get_parser(parser) if inspect.signature(get_parser).parameters else get_parser()
    except argparse.ArgumentError as error:
        raise InputError(
            f'--model {model.NAME}: its flags clash with those of this run ({error})'
        ) from error
    if added is not None and added is not parser:
        for action in added._actions:
            if action.option_strings and not set(action.option_strings) & set(
                parser._option_string_actions
            ):
                parser._add_action(action)
        parser._defaults.update(added._defaults)
    if hasattr(model, 'add_buffer_flags') and '--buffer_size' not in parser._option_string_actions:
        model.add_buffer_flags(parser)
    return {k: v for k, v in parser._defaults.items() if before.get(k, parser) is not v}
