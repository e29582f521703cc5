"""A run's arguments, from the command line, config files and defaults.

Strongest first: command line, the run whose model `--loadcheck` loads, environment, model config
(`models/config/<model>.yaml`), the model's `get_parser` -> `set_defaults`, data-set config
(`datasets/configs/<dataset>/<name>.yaml`), the data set's own defaults, the defaults of
`bench.cli.flags`. `--explain` prints who says what. Nothing here imports torch before a model or a
data set is known: `--help` answers at once.
"""

import argparse
import inspect
import sys
from typing import NamedTuple

from bench.cli import flags, sources
from bench.cli.checks import check_flags, check_method, fill_in
from bench.cli.mammoth_defaults import differences
from bench.cli.sources import Value, merge
from bench.results.keys import run_key
from core.arguments import ArgumentParser, ShortHelp, of_signature
from core.configs import Source, dataset_config, model_config
from core.environment import warn_once
from core.mammoth import use_checkout
from core.plugins import MAMMOTH, ROOT, PluginFolder, is_shipped, keyword_flags, normalise
from scroll.ground.errors import InputError
from scroll.ground.progress import Progress

HELP = ('-h', '--help', '--help_all')


def parse_args(cmd=None, return_parser_only: bool = False):
    """The run's arguments, as `Arguments`, or the parser that knows all their flags.

    The values of some flags decide which further flags there are: model and data set first, which
    have flags and config files, then backbone and weights.

    InputError: anything wrong with the command line or a config file, in one line."""
    words = sys.argv[1:] if cmd is None else list(cmd)
    chosen = _chosen(words)
    parser = base_parser()
    parser.set_defaults(model=chosen.model, dataset=chosen.dataset)
    if set(HELP) & set(words) and not (chosen.model and chosen.dataset):
        parser.epilog = _names()
        for action in parser._actions:  # a method may have its own --lr
            action.required = action.dest in ('model', 'dataset')
        _shorten(parser, words)
        parser.parse_args(words)  # prints and exits
    model, build, dataset = _plugins(chosen)
    values, dataset, usual_weights = _collect(parser, words, chosen, model, build, dataset)
    parser.set_defaults(**{flag: value for flag, (value, _) in values.items()})
    for action in parser._actions:
        action.required = action.required and parser.get_default(action.dest) is None
    if return_parser_only:
        return parser
    _shorten(parser, words, model.REFUSED_FLAGS)
    given = given_flags(parser, words)
    args = parser.parse_args(words)
    for flag in ('model', 'dataset', 'backbone'):
        setattr(args, flag, normalise(getattr(args, flag)))
    args.dataset_config = chosen.dataset_config
    fill_in(args)
    check_method(model, dataset, args, given)
    check_flags(args, given)
    usual = {flag: parser.get_default(flag) for flag in given}
    usual |= {'weights': usual_weights, 'backbone': None, 'dataset_config': None}
    args.given = given
    args.differs = differences(args, model, dataset)
    args.key = run_key(args, {flag for flag in given if getattr(args, flag) != usual[flag]})
    if '--explain' in words:
        for flag, value in _command_line(parser, words).items():
            values[flag] = Value(value, 'the command line')
        sources.explain(parser, args, values)
        raise SystemExit(0)
    return args


def _chosen(words: list) -> argparse.Namespace:
    """Parse what decides which other flags there are, from the flags that every run has."""
    parser = base_parser()
    asked = merge(parser, [sources.environment()])
    parser.set_defaults(**{flag: value for flag, (value, _) in asked.items()})
    chosen = _parse_known(parser, words)
    use_checkout(getattr(chosen, 'mammoth', None))
    chosen.saved = _of_checkpoint(chosen)
    for number, flag in enumerate(('model', 'dataset')):
        if not set(HELP) & set(words) and not getattr(chosen, flag):
            raise InputError(f'--{flag} is missing; {_names().splitlines()[number]}')
    return chosen


def _parse_known(parser: ArgumentParser, words: list) -> argparse.Namespace:
    """The flags that a parser has; none is required."""
    required = [action for action in parser._actions if action.required]
    for action in required:
        action.required = False
    args, _ = parser.parse_known_args([word for word in words if word not in HELP])
    for action in required:
        action.required = True
    return args


def _command_line(parser: ArgumentParser, words: list) -> dict:
    """flag -> value, of the flags on the command line that the parser has."""
    args = vars(_parse_known(parser, words))
    return {flag: args[flag] for flag in given_flags(parser, words) if flag in args}


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


class Selection(NamedTuple):
    """Backbone and weights of a run.

    options: of the backbone, as the weights say. usual: weights, where the command line names
    neither."""

    backbone: Value
    weights: Value
    options: dict
    usual: str


def _collect(parser, words, chosen, model, build, dataset) -> tuple:
    """Add the flags of data set, method and backbone to the parser, and collect their values.

    Returns (flag -> `Value` but for the command line, the data set's class as its config file has
    it, weights by default). Fills in `chosen`."""
    from backbone import get_backbone_class
    from datasets.utils.config import split_config

    theirs = getattr(chosen, 'mammoth_defaults', False)
    dataset.get_parser(parser)
    _add_signature(parser, build, 'data set')
    of_method = sources.of_method(chosen.model, model, add_model_args(parser, model), theirs)
    of_data_set = sources.of_data_set(chosen.dataset, dataset, theirs)

    def run_with(kind, values: dict) -> dict:
        """flag -> value of a run on this kind of data set, as far as they are known."""
        run = {action.dest: parser.get_default(action.dest) for action in parser._actions}
        run |= {flag: value for flag, (value, _) in values.items()}
        run |= _command_line(parser, words)
        run = {flag: None if v is argparse.SUPPRESS else v for flag, v in run.items()}
        run |= {flag: normalise(run[flag]) for flag in ('model', 'dataset', 'backbone')}
        return run | {'n_splits': kind.get_n_splits(argparse.Namespace(**run))}

    def of_config(kind, *weaker) -> list[Source]:
        """The method's config file, for what is said so far."""
        run = run_with(kind, merge(parser, weaker))
        section = 'base' if theirs and is_shipped(model) else 'default'
        return model_config(run['model_config'] or section, run)

    asked = merge(parser, of_config(dataset, *of_data_set, *of_method))
    name, _ = asked.get('dataset_config', (None, ''))  # takes precedence, as in Mammoth
    if name and chosen.dataset_config not in (None, name):
        warn_once(
            f'the config file of {chosen.model} wants --dataset_config {name}: '
            f'{chosen.dataset_config} is not taken'
        )
    chosen.dataset_config = name or chosen.dataset_config
    file, values = dataset_config(normalise(chosen.dataset), chosen.dataset_config)
    constants, values = split_config(values)
    configured = type(dataset.__name__, (dataset,), constants)
    of_file = Source(file, values)
    config = of_config(configured, *of_data_set, of_file, *of_method)
    asked = merge(parser, [of_file, *of_method, *config])
    selected = _select_backbone(chosen, dataset, asked, merge(parser, of_data_set))
    name = selected.backbone.value
    _add_signature(parser, get_backbone_class(name), f'backbone {name}')
    _take_buffer_size(parser, words, chosen.model)
    options = Source(f'--weights {selected.weights.value}', selected.options)
    settled = [
        Source(selected.backbone.source, {'backbone': name}),
        Source(selected.weights.source, {'weights': selected.weights.value}),
    ]
    weaker = [*of_data_set, options, of_file, *of_method]
    config = of_config(configured, *weaker, *settled)
    sources.check_known(parser, [options, of_file, *config])
    saved = sources.of_saved_run(parser, chosen.loadcheck, chosen.saved)
    values = merge(parser, [*weaker, *config, sources.environment(), saved, *settled])
    if configured.is_task_free(argparse.Namespace(**run_with(configured, values))):
        values['n_epochs'] = Value(1, 'a stream without tasks')
    return values, configured, selected.usual


def _select_backbone(chosen, dataset, asked: dict, defaults: dict) -> Selection:
    """Fills in `chosen.weights`.

    asked: flag -> `Value` of config files and the method. defaults: of the data set."""
    from backbone import PLUGINS, weights
    from models import PLUGINS as METHODS

    def unless_given(backbone) -> Value:  # one that is asked for by name is made from scratch
        said = asked.get('weights') or defaults.get('weights')
        if said:
            return said
        if backbone:
            return Value('none', f'--backbone {backbone}')
        return Value(dataset.DEFAULT_WEIGHTS or weights.DEFAULT, 'default')

    configured = asked.get('backbone', Value(None, ''))
    wanted = Value(chosen.backbone, 'the run') if chosen.backbone else configured
    usual = str(unless_given(configured.value).value)
    start = Value(chosen.weights, 'the run') if chosen.weights else unless_given(wanted.value)
    chosen.weights = str(start.value)
    start = start._replace(value=chosen.weights)
    if chosen.weights == 'none':
        backbone = (
            wanted if wanted.value else defaults.get('backbone', Value('resnet18', 'default'))
        )
        name = normalise(backbone.value)
        if (
            not chosen.backbone
            and METHODS.is_theirs(chosen.model)
            and PLUGINS.offers(MAMMOTH + name)
        ):
            name = MAMMOTH + name  # the checkout's methods may reach into its networks
        return Selection(backbone._replace(value=name), start, {}, usual)
    about = weights.load(chosen.weights, tensors=False)
    if wanted.value and normalise(wanted.value) != about.backbone:
        if chosen.backbone:
            raise InputError(
                f'--backbone {chosen.backbone}: --weights {chosen.weights} are for '
                f'{about.backbone}; leave --weights out to start from scratch, or give others'
            )
        warn_once(
            f'--weights {chosen.weights} are for {about.backbone}, which takes precedence over '
            f'backbone {wanted.value} of a config file'
        )
    backbone = Value(about.backbone, f'--weights {chosen.weights}')
    return Selection(backbone, start, about.options, usual)


def _take_buffer_size(parser, words, model: str) -> None:
    """Let a script give every method a `--buffer_size`."""
    if any(action.dest == 'buffer_size' for action in parser._actions) or not any(
        word.partition('=')[0] == '--buffer_size' for word in words
    ):
        return
    warn_once(
        f'--buffer_size has no effect: {model} does not declare it (a method with a buffer '
        'is a ReplayModel, or has add_rehearsal_args(parser) in its get_parser)'
    )
    parser.add_argument('--buffer_size', type=lambda _: 0, default=0, help=argparse.SUPPRESS)


def _add_signature(parser, build, title: str) -> None:
    """Add a flag for each keyword parameter of a data set or backbone, unless there is one."""
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


def given_flags(parser: ArgumentParser, words) -> set:
    """Names (`dest`) of the flags on the command line. InputError where one is given twice, by any
    name.
    """
    options = {}
    for word in words:
        option = word.split('=')[0] if word.startswith('--') else word[:2]  # -O3
        action = parser._option_string_actions.get(option)
        if action is None:
            continue
        if action.dest in options:
            raise InputError(
                f'{option} is given 2 times, before as {options[action.dest]}: give it once'
            )
        options[action.dest] = option
    return set(options)


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
