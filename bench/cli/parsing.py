"""A run's arguments, from the command line, config files and defaults.

Strongest first: command line, the run whose model `--loadcheck` loads, environment, model config
(`models/config/<model>.yaml`), the model's `get_parser` -> `set_defaults`, data-set config
(`datasets/configs/<dataset>/<name>.yaml`), the data set's own defaults, the defaults of
`bench.cli.flags`. `--explain` prints who says what. Nothing here imports torch before a model or a
data set is known: `--help` answers at once.
"""

import argparse
import sys

from bench.cli.checks import check_flags, check_method, fill_in
from bench.cli.mammoth_defaults import differences, of_data, of_method, sees_once
from bench.cli.parser import (
    HELP,
    accept_buffer_size,
    add_model_args,
    add_signature,
    base_parser,
    check_names,
    parse_known,
    plugin_names,
    shorten_help,
)
from bench.cli.sources import Value, check_known, environment, explain, merge
from bench.results.keys import run_key
from core.arguments import FREE
from core.configs import Source, dataset_config, model_config
from core.environment import warn_once
from core.forks import add_missing_flags, their_errors
from core.mammoth import use_checkout
from core.plugins import MAMMOTH, is_shipped, normalise
from scroll.ground.errors import InputError

_CUTS = {'joint', 'n_splits', 'schedule', 'inc', 'b'}


def parse_args(cmd=None, return_parser_only: bool = False):
    """The run's arguments, as `Arguments`, or the parser that knows all their flags.

    The values of some flags decide which further flags there are: model and data set first, which
    have flags and config files, then backbone and weights.

    InputError: anything wrong with the command line or a config file, in one line."""
    words = sys.argv[1:] if cmd is None else list(cmd)
    chosen = _choose(words)
    parser = base_parser()
    parser.set_defaults(model=chosen.model, dataset=chosen.dataset)
    short = HELP.intersection(words) and '--help_all' not in words
    if HELP.intersection(words) and not (chosen.model and chosen.dataset):
        parser.epilog = plugin_names()
        if short:
            shorten_help(parser)
        parser.parse_args(words)  # prints and exits
    model, build = _plugins(chosen)
    values, dataset, usual_weights = _collect(parser, words, chosen, model, build)
    parser.set_defaults(**_without_sources(values))
    for action in parser._actions:
        action.required = action.required and parser.get_default(action.dest) is None
    if return_parser_only:
        return parser
    if short:
        shorten_help(parser, model.REFUSED_FLAGS)
    args = parser.parse_args(words)
    given = args.given
    typed = {flag: Value(getattr(args, flag), 'the command line') for flag in given}
    for flag in ('model', 'dataset', 'backbone'):
        setattr(args, flag, normalise(getattr(args, flag)))
    args.dataset_config = chosen.dataset_config
    fill_in(args)
    check_method(model, dataset, args, given)
    check_flags(args, given)
    usual = {flag: parser.get_default(flag) for flag in given}
    usual |= {'weights': usual_weights, 'backbone': None, 'dataset_config': None}
    args.differs = differences(args, model, dataset)
    asked = {flag for flag in given if getattr(args, flag) != usual[flag]}
    args.key = run_key(args, asked, dataset.schedule_spec(args))
    if 'explain' in given:
        explain(parser, args, values | typed)
        raise SystemExit(0)
    return args


def _without_sources(values: dict) -> dict:
    """flag -> value, of flag -> `Value`."""
    return {flag: value for flag, (value, _) in values.items()}


def _choose(words: list) -> argparse.Namespace:
    """Parse what decides which other flags there are, from the flags that every run has."""
    parser = base_parser()
    asked = merge(parser, [environment()])
    parser.set_defaults(**_without_sources(asked))
    chosen, _ = parse_known(parser, words)
    use_checkout(getattr(chosen, 'mammoth', None))
    if not HELP.intersection(words):
        check_names(words)
    chosen.saved = _of_checkpoint(chosen)
    for number, flag in enumerate(('model', 'dataset')):
        if not HELP.intersection(words) and not getattr(chosen, flag):
            raise InputError(f'--{flag} is missing; {plugin_names().splitlines()[number]}')
    return chosen


def _of_checkpoint(chosen) -> dict:
    """Defaults: arguments of the run that `--loadcheck` names, if of the same method and data."""
    if not chosen.loadcheck:
        return {}
    from bench.resume.saved_models import read

    saved = {k: v for k, v in read(chosen.loadcheck)['args'].items() if v is not None}
    for flag in ('model', 'dataset'):
        name = getattr(chosen, flag)
        if name and normalise(name) != normalise(saved.get(flag, name)):
            return {}
    for flag in ('model', 'dataset', 'dataset_config', 'weights', 'backbone'):
        setattr(chosen, flag, getattr(chosen, flag) or saved.get(flag))
    return saved


def _plugins(chosen) -> tuple:
    """(class of the method, what builds the data set)."""
    import datasets
    import models

    models.PLUGINS.check(chosen.model)
    datasets.PLUGINS.check(chosen.dataset)
    model = models.get_model_class(chosen.model)
    if not hasattr(model, 'ONLINE'):
        raise InputError(f'--model {chosen.model}: its base class is no ContinualModel of ours')
    return model, datasets.get_dataset_class(chosen.dataset)


def _collect(parser, words, chosen, model, build) -> tuple:
    """Add the flags of data set, method and backbone to the parser, and collect their values.

    Returns (flag -> `Value` but for the command line, the data set's class as its config file has
    it, weights by default). Fills in `chosen`."""
    from backbone import get_backbone_class
    from datasets.utils.config import split_config
    from datasets.utils.continual_dataset import ContinualDataset
    from datasets.utils.defaults import OF_DATA_SET, dataset_defaults

    dataset = build if isinstance(build, type) else ContinualDataset
    theirs = getattr(chosen, 'mammoth_defaults', False)
    dataset.get_parser(parser)
    add_signature(parser, build, 'data set')
    once = {'n_epochs': 1} if sees_once(model, theirs) else {}
    with their_errors(f'--model {chosen.model}'):
        of_model = add_model_args(parser, model)
        add_missing_flags(parser, model)
    method = [Source(f'method {chosen.model}', once | of_model)]
    data_set = [Source(f'data set {chosen.dataset}', dataset_defaults(dataset))]
    if theirs:
        other = {k: v for k, v in of_method(model).items() if v not in (None, 'required')}
        method.append(Source("Mammoth's defaults", other))
        data_set.append(Source("Mammoth's defaults", of_data(dataset)))

    def run_with(kind, values: dict) -> dict:
        """flag -> value of a run on this kind of data set, as far as they are known."""
        run = {action.dest: parser.get_default(action.dest) for action in parser._actions}
        run |= _without_sources(values)
        known, _ = parse_known(parser, words)
        run |= {flag: getattr(known, flag) for flag in known.given}
        run = {flag: None if v is argparse.SUPPRESS else v for flag, v in run.items()}
        run |= {flag: normalise(run[flag]) for flag in ('model', 'dataset', 'backbone')}
        return run | {'n_splits': kind.get_n_splits(argparse.Namespace(**run))}

    def of_config(kind, *weaker) -> list[Source]:
        """The method's config file, for what is said so far."""
        run = run_with(kind, merge(parser, weaker))
        section = 'base' if theirs and is_shipped(model) else 'default'
        return model_config(run['model_config'] or section, run)

    asked = merge(parser, of_config(dataset, *data_set, *method))
    name, _ = asked.get('dataset_config', (None, ''))  # takes precedence, as in Mammoth
    if name and chosen.dataset_config not in (None, name):
        warn_once(
            f'the config file of {chosen.model} wants --dataset_config {name}: '
            f'{chosen.dataset_config} is not taken'
        )
    chosen.dataset_config = name or chosen.dataset_config
    of_file = dataset_config(normalise(chosen.dataset), chosen.dataset_config)
    constants, values = split_config(of_file.values)
    configured = type(dataset.__name__, (dataset,), constants)
    of_file = of_file._replace(values=values)
    config = of_config(configured, *data_set, of_file, *method)
    asked = merge(parser, [of_file, *method, *config])
    options, selected, usual = _select_backbone(chosen, dataset, asked, merge(parser, data_set))
    if not chosen.backbone.startswith(OF_DATA_SET):
        add_signature(parser, get_backbone_class(chosen.backbone), f'backbone {chosen.backbone}')
    accept_buffer_size(parser, words, chosen.model)
    weaker = [*data_set, options, of_file, *method]
    config = of_config(configured, *weaker, *selected)
    check_known(parser, [options, of_file, *config])
    kinds = parser.affects()
    recut = _CUTS if _CUTS.intersection(parse_known(parser, words)[0].given) else ()
    lasting = {
        flag: value
        for flag, value in chosen.saved.items()
        if kinds.get(flag) not in FREE | {'part', 'run'} and flag not in recut
    }
    saved = Source(f'--loadcheck {chosen.loadcheck}', lasting)
    values = merge(parser, [*weaker, *config, environment(), saved, *selected])
    if configured.is_task_free(argparse.Namespace(**run_with(configured, values))):
        values['n_epochs'] = Value(1, 'a stream without tasks')
    return values, configured, usual


def _select_backbone(chosen, dataset, asked: dict, defaults: dict) -> tuple:
    """Choose backbone and weights from those that are asked for; fills in both of `chosen`.

    asked: flag -> `Value` of config files and the method. defaults: of the data set.

    Returns (source of the backbone's options, as the weights say; those of the two flags; weights,
    where the command line names neither)."""
    from backbone import PLUGINS, weights
    from models import PLUGINS as METHODS

    def unless_given(backbone) -> Value:  # one that is asked for by name is made from scratch
        for said in (asked.get('weights'), defaults.get('weights')):
            if said and said.value:
                return said
        if backbone:
            return Value('none', f'--backbone {backbone}')
        return Value(dataset.DEFAULT_WEIGHTS or weights.DEFAULT, 'default')

    saved = f'--loadcheck {chosen.loadcheck}'
    wanted, source = asked.get('backbone', (None, 'default'))
    usual = str(unless_given(wanted).value)
    if chosen.backbone:
        wanted, source = chosen.backbone, saved
    start = Value(chosen.weights, saved) if chosen.weights else unless_given(wanted)
    chosen.weights = str(start.value)
    options = {}
    if chosen.weights == 'none':
        if not wanted:
            wanted, source = defaults.get('backbone', ('resnet18', source))
        name = normalise(wanted)
        theirs = METHODS.is_theirs(chosen.model) and PLUGINS.offers(MAMMOTH + name)
        if theirs and not chosen.backbone:
            name = MAMMOTH + name  # the checkout's methods may reach into its networks
    else:
        about = weights.load(chosen.weights, tensors=False)
        name = about.backbone
        options = about.options
        source = f'--weights {chosen.weights}'
        if wanted and normalise(wanted) != name:
            if chosen.backbone:
                raise InputError(
                    f'--backbone {chosen.backbone}: {source} are for {name}; leave --weights out '
                    'to start from scratch, or give others'
                )
            warn_once(
                f'{source} are for {name}, which takes precedence over backbone {wanted} of a '
                'config file'
            )
    chosen.backbone = name
    values = [Source(source, {'backbone': name}), Source(start.source, {'weights': chosen.weights})]
    return Source(f'--weights {chosen.weights}', options), values, usual
