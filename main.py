#!/usr/bin/env python3
"""Train a continual-learning method on a stream, from the command line.

    python main.py --model scroll --dataset seq-cifar100 --n_splits 50
"""
import argparse
import importlib.util
import os
import sys
import typing

HERE = os.path.dirname(os.path.realpath(__file__))                  # also of the link utils/main.py, whose folder is no package
sys.path[:] = [HERE, *(p for p in sys.path if os.path.realpath(p) != os.path.join(HERE, 'utils'))]  # `datasets` is ours

from utils import distributed  # noqa: E402
from utils.args import (  # noqa: E402
    HELP,
    add_model_args,
    apply_defaults,
    base_parser,
    binary_to_boolean_type,
    check_repeated,
    dataset_config,
    given_flags,
    model_config,
    parse_known,
    relax_required,
    whole,
)
from utils.checks import check_flags, check_method, settle  # noqa: E402
from utils.commands import run_command  # noqa: E402
from utils.conf import warn_once  # noqa: E402
from utils.errors import UserError  # noqa: E402
from utils.plugins import ROOT, backbone_name, keyword_flags, normalise  # noqa: E402
from utils.progress import Progress  # noqa: E402
from utils.tracking import check_tracking  # noqa: E402


def parse_args(cmd=None, return_parser_only: bool = False):
    """The run's arguments, or the parser that knows all their flags; see `utils.args` for the order of precedence.

    Raises:
        UserError: anything wrong with the command line or a config file, in one line.
    """
    cmd = sys.argv[1:] if cmd is None else list(cmd)
    check_repeated(cmd)
    chosen = _peek(cmd)
    parser = base_parser()
    parser.set_defaults(model=chosen.model, dataset=chosen.dataset)
    if set(HELP) & set(cmd) and not (chosen.model and chosen.dataset):
        parser.epilog = _names()
        parser.parse_args(cmd)                                      # prints and exits
    import datasets
    import models
    models.PLUGINS.check(chosen.model)
    datasets.PLUGINS.check(chosen.dataset)
    with Progress(f'Loading {chosen.model} and {chosen.dataset}', quiet=chosen.non_verbose):  # torch takes seconds
        import backbone
        from datasets.utils.config import split_config
        from datasets.utils.continual_dataset import ContinualDataset
        from datasets.utils.defaults import dataset_defaults
        model, build = models.get_model_class(chosen.model), datasets.get_dataset_class(chosen.dataset)
    dataset = build if isinstance(build, type) else ContinualDataset
    dataset.get_parser(parser)
    _flags_of(parser, build, 'data set')
    from_model, own = add_model_args(parser, model), dataset_defaults(dataset)
    asked = _model_config(_known(parser, cmd, dataset, own | from_model))[0]
    _take_dataset_config(chosen, asked)
    values, source = dataset_config(normalise(chosen.dataset), chosen.dataset_config)
    constants, from_data = split_config(values)
    configured = type(dataset.__name__, (dataset,), constants)
    asked = from_data | from_model
    asked |= _model_config(_known(parser, cmd, configured, own | asked))[0]
    about, name = _backbone(chosen, dataset, asked, own.get('backbone', 'resnet18'))
    _flags_of(parser, backbone.get_backbone_class(name), f'backbone {name}')
    flags, net = {action.dest for action in parser._actions}, dict(backbone=name, weights=chosen.weights)
    own = {flag: value for flag, value in own.items() if flag in flags}     # a model has what it may not know
    apply_defaults(parser, own | net, 'defaults of the data set')
    if about is not None:
        apply_defaults(parser, about.options, f'--weights {chosen.weights}')
    apply_defaults(parser, from_data | net, source)
    from_model = {flag: value for flag, value in from_model.items() if flag in flags}
    online = dict(n_epochs=1) if model.ONLINE else {}
    apply_defaults(parser, online | from_model | net, f'defaults of {chosen.model}')
    known = _known(parser, cmd, configured, {}, all_flags=True)
    from_config, source = _model_config(known)
    apply_defaults(parser, {k: v for k, v in from_config.items() if k != 'dataset_config'} | net, source)
    apply_defaults(parser, {k: v for k, v in chosen.saved.items() if k in flags}, f'--loadcheck {chosen.loadcheck}')
    parser.set_defaults(dataset_config=chosen.dataset_config, **net)
    relax_required(parser)
    if dataset.is_task_free(argparse.Namespace(**known)):
        parser.set_defaults(n_epochs=1)
    if return_parser_only:
        return parser
    given, args = given_flags(parser, cmd), parser.parse_args(cmd)
    args.model, args.dataset = normalise(args.model), normalise(args.dataset)
    args.backbone, args.dataset_config = backbone_name(args.backbone), chosen.dataset_config
    settle(args)
    check_flags(args, given)
    check_tracking(args)
    check_method(model, dataset, args, given)
    return args


def _known(parser, cmd, dataset, defaults: dict, all_flags: bool = False) -> dict:
    """Arguments as far as they can be known, for the conditions of a model's config file."""
    given = given_flags(parser, cmd)
    known = parse_known(parser, cmd, all_flags)
    known |= {flag: value for flag, value in defaults.items() if flag not in given}
    known |= {name: normalise(known[name]) for name in ('model', 'dataset', 'backbone')}
    return known | dict(n_splits=dataset.get_n_splits(argparse.Namespace(**known)))


def _model_config(known: dict) -> tuple:
    """(values, source) of the method's config file for such arguments."""
    return model_config(known['model'], known['model_config'] or 'default', known)


def _take_dataset_config(chosen, asked: dict) -> None:
    """The data-set config that the model's names goes before the one on the command line, as in Mammoth."""
    name = asked.get('dataset_config')
    if name and chosen.dataset_config not in (None, name):
        warn_once(f'the config file of {chosen.model} wants --dataset_config {name}: {chosen.dataset_config} '
                  'is not taken')
    chosen.dataset_config = name or chosen.dataset_config


def _peek(cmd):
    """What decides which other flags there are."""
    parser = base_parser(add_help=False)
    parser.add_argument('--buffer_size', type=whole(0, 10 ** 9))
    for action in parser._actions:
        action.required = False
    chosen = parser.parse_known_args([item for item in cmd if item not in HELP])[0]
    chosen.saved = _of_checkpoint(chosen)
    if not set(HELP) & set(cmd):
        for flag in ('model', 'dataset'):
            if not getattr(chosen, flag):
                raise UserError(f'--{flag} is missing; {_names().splitlines()[flag == "dataset"]}')
    return chosen


def _of_checkpoint(chosen) -> dict:
    """Defaults: arguments of the run whose model `--loadcheck` names, where that is the same method on the same data."""
    if not chosen.loadcheck:
        return {}
    from utils.saved_models import saved_args
    saved = saved_args(chosen.loadcheck, chosen.checkpoint_path)
    for name in ('model', 'dataset'):
        given = getattr(chosen, name)
        if given and normalise(given) != normalise(saved.get(name, given)):
            return {}
    for name in ('model', 'dataset', 'dataset_config', 'weights', 'backbone'):
        setattr(chosen, name, getattr(chosen, name) or saved.get(name))
    return {name: value for name, value in saved.items() if name not in ('backbone', 'weights')}


def _backbone(chosen, dataset, asked: dict, default: str):
    """(what the weights say about themselves or None, backbone name); fills in `chosen.weights`.

    Args:
        asked: what config files and the method say. default: the data set's own backbone.
    """
    from backbone import weights
    wanted = chosen.backbone or asked.get('backbone')
    start = 'none' if wanted else dataset.DEFAULT_WEIGHTS or weights.DEFAULT    # a name: from scratch
    chosen.weights = str(chosen.weights or asked.get('weights') or start)
    if chosen.weights == 'none':
        return None, backbone_name(wanted or default)
    about = weights.load(chosen.weights, tensors=False)
    if wanted and backbone_name(wanted) != about.backbone:
        if chosen.backbone:
            raise UserError(f'--backbone {chosen.backbone}: --weights {chosen.weights} are for '
                            f'{about.backbone}; leave --weights out to start from scratch, or give others')
        warn_once(f'--weights {chosen.weights} are for {about.backbone}, which goes before backbone {wanted} '
                  'of a config file')
    return about, about.backbone


def _flags_of(parser, build, title: str) -> None:
    """A flag for each keyword parameter of a signature (data set, backbone); one that is there serves it."""
    taken = {action.dest for action in parser._actions}
    new = {name: p for name, p in keyword_flags(build).items() if name not in taken}
    if shared := [name for name in keyword_flags(build) if name in taken]:
        warn_once(f"{title}: {', '.join(shared)} of its signature: a flag of that name serves both")
    group = parser.add_argument_group(title) if new else None
    for name, parameter in new.items():
        default = None if parameter.default is parameter.empty else parameter.default
        choices = typing.get_args(parameter.annotation) if typing.get_origin(parameter.annotation) is typing.Literal else None
        kind = parameter.annotation if parameter.annotation in (int, float, str, bool) else type(default)
        kind = type(choices[0]) if choices else kind
        kind = binary_to_boolean_type if kind is bool else str if kind is type(None) else kind
        group.add_argument(f'--{name}', type=kind, default=default, required=parameter.default is parameter.empty,
                           choices=choices, help=f'of the {title}')


def _names() -> str:
    """What --model, --dataset and --weights accept, read from file names and sources: no import."""
    from utils.plugins import PluginFolder
    shipped = ' '.join(sorted(p.stem for p in (ROOT / 'backbone' / 'weights').glob('*.safetensors')))
    lines = [f"{kind}s: {' '.join(PluginFolder(folder, kind).names())}"
             for folder, kind in (('models', 'model'), ('datasets', 'dataset'), ('backbone', 'backbone'))]
    return '\n'.join([*lines, f'weights: {shipped or "none"}', 'Add --model and --dataset to see their flags.'])


def initialize(args=None):
    """Data set, backbone and model of a run: (model, dataset, args). Without arguments, those of the command line."""
    args = parse_args() if args is None else args
    import torch

    from backbone import get_backbone, weights
    from datasets import get_dataset
    from models import get_model
    from scroll.embedding import state_digest
    from utils.conf import base_path, choose_devices, get_checkpoint_path, results_folder, set_random_seed
    from utils.results import check_writable
    from utils.speed import arrange, optimise, reuse_memory, split_among_gpus
    if args.num_threads:
        torch.set_num_threads(args.num_threads)
    world = distributed.join(args)
    devices = choose_devices(args.device, several=args.distributed == 'dp')
    args.device = devices[0]
    base_path(args.base_path)
    get_checkpoint_path(args.checkpoint_path)
    set_random_seed(args.seed)
    reuse_memory()
    if not args.disable_log:
        check_writable(results_folder(args, 'class-il').parent.parent.parent)
    dataset = world.first_then_others(lambda: get_dataset(args))
    args.class_order, args.num_classes = getattr(dataset, 'class_order', None), _outputs(args, dataset)
    net = get_backbone(args)
    if args.weights != 'none':
        weights.load(args.weights).load_into(net)
    psi_digest = state_digest(net)
    optimise(net, args.code_optimization)
    model = get_model(args, net, dataset.get_loss(), dataset.get_transform(), dataset)
    model.psi_digest = psi_digest
    arrange(model)
    if args.distributed == 'dp':
        split_among_gpus(model, devices)
    return model, dataset, args


def _outputs(args, dataset) -> int:
    """Outputs of the network: one for each class, or `--num_classes`."""
    outputs = getattr(args, 'num_classes', dataset.N_CLASSES)
    if outputs < dataset.N_CLASSES:
        raise UserError(f'--num_classes {outputs}: {args.dataset} has {dataset.N_CLASSES} classes; give as '
                        'many or more')
    return outputs


def _environment() -> None:
    """Variables from a file `.env` beside this one (keys of Weights & Biases), where python-dotenv is there to read it."""
    if os.environ.get('MAMMOTH_TEST') != '1' and importlib.util.find_spec('dotenv'):
        from dotenv import load_dotenv
        load_dotenv(ROOT / '.env')


def run(args=None) -> None:
    """One run, from arguments to results."""
    _environment()
    distributed.mute_others()
    model, dataset, args = initialize(args)             # first: `--help` ends here, and needs no torch
    from utils.training import train
    train(model, dataset, args)
    distributed.leave()


def main(args=None) -> int:
    """`run`, as an exit code: 0, or 2 after one line on what the user can mend."""
    return run_command(lambda: run(args))


if __name__ == '__main__':
    sys.exit(main())
