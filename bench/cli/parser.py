"""The parser of a run's command line: its flags come from here, the method, the data set and the
backbone. Nothing here imports torch.
"""

import argparse
import inspect
import json
import sys

from bench.cli import flags
from core.arguments import ArgumentParser, Arguments, ShortHelp, add_rehearsal_args, of_signature
from core.environment import warn_once
from core.plugins import FOLDERS, ROOT, keyword_flags
from scroll.ground.errors import InputError

HELP = {'-h', '--help', '--help_all'}


def base_parser() -> ArgumentParser:
    """The flags that every run has."""
    parser = ArgumentParser(
        prog='main.py', description='Continual learning under any schedule.', once=True
    )
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


def shorten_help(parser: ArgumentParser, refused=()) -> None:
    """Let `--help` show common flags, and those that method, data set and backbone have of their
    own, a line each. refused: flags that the method refuses."""
    rare = {name for action in base_parser()._actions for name in _names_of(action)}
    rare = (rare - flags.COMMON).union(refused)
    for action in parser._actions:
        if rare.intersection(_names_of(action)):
            action.help = argparse.SUPPRESS
    parser.formatter_class = ShortHelp
    parser.usage = 'main.py --model NAME --dataset NAME [--flag ...]'


def _names_of(action) -> list[str]:
    return [option.lstrip('-') for option in action.option_strings]


def plugin_names() -> str:
    """Names that --model, --dataset and --weights accept, read from file names and sources: no
    import.
    """
    lines = [f'{folder.kind}s: {" ".join(folder.names())}' for folder in FOLDERS.values()]
    files = (ROOT / 'backbone' / 'weights').iterdir()
    lines += [
        f'weights: {" ".join(sorted({path.name.partition(".")[0] for path in files}))}',
        'With --model and --dataset: their flags, as --n_splits, --schedule, --buffer_size.',
    ]
    return '\n'.join(lines)


def add_model_args(parser: ArgumentParser, model) -> dict:
    """Let a method add its flags; returns the defaults it sets.

    `get_parser(parser)` adds to what it is given, and may return it, another parser or nothing; in
    files written for earlier versions of Mammoth `get_parser()` returns a parser of its own. Flags
    of these defaults may be added later."""
    before = dict(parser._defaults)
    get_parser = model.get_parser
    if not any(
        'get_parser' in vars(kind) for kind in model.__mro__ if kind.__module__ == model.__module__
    ):  # the oldest files have a function in the place of a method
        # not what a checkout's file of that name has
        get_parser = vars(sys.modules.get(model.__module__, object)).get('get_parser', get_parser)
    try:
        added = get_parser(parser) if inspect.signature(get_parser).parameters else get_parser()
    except argparse.ArgumentError as error:
        raise InputError(
            f'--model {model.NAME}: its flags clash with those of this run ({error})'
        ) from error
    if added is not None and added is not parser:
        for action in added._actions:
            if parser._option_string_actions.keys().isdisjoint(action.option_strings):
                parser._add_action(action)
        parser._defaults.update(added._defaults)
    if hasattr(model, 'add_buffer_flags') and '--buffer_size' not in parser._option_string_actions:
        model.add_buffer_flags(parser)
    return {k: v for k, v in parser._defaults.items() if before.get(k, parser) is not v}


def add_signature(parser, build, title: str) -> None:
    """Add a flag for each keyword parameter of a data set or backbone, unless there is one."""
    taken = {action.dest for action in parser._actions}
    group = parser.add_argument_group(title)
    for name, parameter in keyword_flags(build).items():
        required = parameter.default is parameter.empty
        if name not in taken:
            group.add_argument(
                f'--{name}', **of_signature(parameter), required=required, help=f'of the {title}'
            )


def accept_buffer_size(parser, words, model: str) -> None:
    """Let a script give every method a `--buffer_size`."""
    given = any(word.partition('=')[0] == '--buffer_size' for word in words)
    if not given or '--buffer_size' in parser._option_string_actions:
        return
    warn_once(
        f'--buffer_size has no effect: {model} does not declare it (a method with a buffer '
        'is a ReplayModel, or has add_rehearsal_args(parser) in its get_parser)'
    )
    parser.add_argument('--buffer_size', type=lambda _: 0, default=0, help=argparse.SUPPRESS)


def check_names(words: list) -> None:
    """InputError for a flag that no method, data set or backbone of this project has, and for a
    wrong value of a buffer's; before torch is imported, which takes seconds. Where there are other
    plug-ins, they may have any flag."""
    files = [offers for folder in FOLDERS.values() for offers in folder.files().values()]
    if 'torch' in sys.modules or any(offer.rank != 1 for offers in files for offer in offers):
        return
    parser = base_parser()
    add_rehearsal_args(parser)
    known = json.loads((ROOT / 'core/flags.json').read_text())
    for word in parse_known(parser, words)[1]:
        if word.startswith('--') and word.partition('=')[0] not in known:
            parser.refuse(word, known)


def parse_known(parser: ArgumentParser, words: list) -> tuple[Arguments, list]:
    """(flags that a parser has, none of them required; the other words)."""
    required = [action for action in parser._actions if action.required]
    for action in required:
        action.required = False
    found = parser.parse_known_args([word for word in words if word not in HELP])
    for action in required:
        action.required = True
    return found
