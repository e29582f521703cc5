"""Models as files, for whoever wants one later: `--savecheck`, `--loadcheck`, in Mammoth's `safe`
format.

A file holds plain data: `model` (the method's `state_dict`), `optimizer`, `scheduler`, `args`,
`results` (class-il and task-il accuracies), `buffer` (of methods that replay), as Mammoth's do;
and, of ours, `run`:
all that the run needs to be resumed exactly where it was.
"""

import logging
from pathlib import Path

import torch

from bench.resume.checkpoints import write
from bench.resume.run_state import Incomplete, Position
from core.environment import warn_once
from core.plugins import MAMMOTH, normalise
from core.torch_files import IGNORED, load_torch
from scroll.ground.archive import read_errors, write_errors
from scroll.ground.errors import InputError
from utils import to_parsable_obj

# arguments that a run and the one that it continues share
_SAME = [
    'model',
    'dataset',
    'backbone',
    'n_splits',
    'schedule',
    'inc',
    'b',
    'joint',
    'permute_classes',
    'custom_class_order',
    'custom_task_order',
    'buffer_size',
    'validation',
    'input_size',
    'num_classes',
    'seed',
]
_COUNTER = IGNORED['batch counter']


def save(state, args, arguments: dict, task: int) -> None:
    """Write what `--savecheck` asks for after this task, or an InputError. arguments: as the run
    began.
    """
    model = state.model
    record = state.parts['record']
    scheduler = state.parts.get('scheduler')
    which = 'joint' if args.joint else task if args.savecheck == 'task' else 'last'
    start = '' if args.ckpt_name is None else f'{args.ckpt_name}_'
    time, _, of_run = record.run.rpartition('-')
    name = (
        f'{start}{args.model}_{args.dataset}_{args.dataset_config}_{args.buffer_size}_'
        f'{args.n_epochs}_{time}_{of_run}'
    )
    path = Path(args.checkpoint_path) / f'{name}_{which}.pt'
    logging.getLogger(__name__).info('Saving checkpoint into: %s', name)
    content = {
        'model': {
            name: t.cpu() if isinstance(t, torch.Tensor) else t
            for name, t in model.state_dict().items()
        },
        'optimizer': None if model.opt is None else model.opt.state_dict(),
        'scheduler': None if scheduler is None else scheduler.state_dict(),
        'args': to_parsable_obj(arguments),
        'results': [record.class_il, record.task_il, {}],
        'run': None,
    }
    if hasattr(getattr(model, 'buffer', None), 'serialize'):
        content['buffer'] = model.buffer.serialize()
    try:
        content['run'] = state.gather(Position(task + 1))
    except Incomplete as error:
        warn_once(
            f'--savecheck: {args.model} keeps what no file can hold ({error}): a run cannot be '
            f'continued from {path}'
        )
    with write_errors(path):
        write(path, content)
    print(f'  checkpoint: {path}', flush=True)


def read(path) -> dict:
    """The content of such a file, or of one that Mammoth wrote, its arguments as a dict.
    InputError: it is neither."""
    with read_errors(f'--loadcheck {path}'):
        if not Path(path).is_file():
            raise InputError('there is no such file')
        content = load_torch(path)
        if not all(isinstance(name, str) for name in content['model']):
            raise InputError('not the file of a model')
        args = content.get('args') or {}
        return content | {'args': dict(getattr(args, '__dict__', args))}


def load(state, args) -> Position:
    """Begin as `--loadcheck` says: with a file's weights and buffer, or, with `--start_from` or to
    evaluate it (`--inference_only`), exactly where its run was."""
    if args.loadcheck is None:
        return Position()
    content = read(args.loadcheck)
    first = args.start_from or 0
    with read_errors(f'--loadcheck {args.loadcheck}'):
        if content.get('run') is not None and (first or args.inference_only):
            return _resume(state, args, content, first)
        if first and content.get('results'):  # the accuracies on the tasks before
            rows = [
                [[float(a) for a in row] for row in part[:first]] for part in content['results'][:2]
            ]
            if len(rows[0]) == first:
                record = state.parts['record']
                record.first, (record.class_il, record.task_il) = 0, rows
    if not first:
        load_weights(state.model, state.dataset, args)
    return Position()


def load_weights(model, dataset, args) -> None:
    """Give a method the weights and the buffer in the file of `--loadcheck`. With `--start_from`
    once earlier tasks have ended, at whose ends methods fill buffers."""
    if args.loadcheck is None:
        return
    content = read(args.loadcheck)
    with read_errors(f'--loadcheck {args.loadcheck}'):
        of = normalise(content['args'].get('model')).removeprefix(MAMMOTH)
        _load_tensors(model, content['model'], of == normalise(model.NAME))
        if 'buffer' in content and hasattr(model, 'load_buffer') and hasattr(model, 'buffer'):
            _load_buffer(model, dataset, content['buffer'])
    print(f'{args.loadcheck}: its weights are loaded', flush=True)


def _resume(state, args, content: dict, first: int) -> Position:
    """Exactly where the file's run was, if it was this run; the row has a name of its own."""
    ended = content['run']['position'][0]
    saved = content['args']
    record = state.parts['record']
    if first and ended != first:
        raise InputError(
            f'--start_from {first}: its run ended after task {ended}; give --start_from {ended}'
        )
    for name in _SAME:
        here = to_parsable_obj(getattr(args, name, None))
        if name in saved and here != saved[name]:
            raise InputError(f'its run had --{name} {saved[name]}, this one has {here}')
    name = record.run
    position = state.restore(content['run'])
    record.run = name
    print(f'{args.loadcheck}: going on {position}', flush=True)
    return position


def _load_tensors(model, tensors: dict, same: bool) -> None:
    """A method's tensors by name; without counters of batches or a teacher if they are missing.
    same: of the same method, which may have buffers only when it has learned."""
    for name in [name for name in tensors if same and '.' not in name and not hasattr(model, name)]:
        model.register_buffer(name, tensors[name])
    own = model.state_dict()
    given = {
        name: tensor
        for name, tensor in tensors.items()
        if name in own
        or not (_COUNTER.fullmatch(name) or getattr(model, name.split('.')[0], model) is None)
    }
    for name in own.keys() & given.keys():
        if not torch.can_cast(given[name].dtype, own[name].dtype):
            raise InputError(f'{name} is of {given[name].dtype} and should be of {own[name].dtype}')
    model.load_state_dict({name: t for name, t in own.items() if _COUNTER.fullmatch(name)} | given)


def _load_buffer(model, dataset, content) -> None:
    """The samples of the file's buffer; float images become uint8 where the method keeps such
    (`raw`).
    """
    if not isinstance(content, dict):
        warn_once(
            '--loadcheck: the buffer in the file is code and not data (old_pickle), and is left out'
        )
        return
    examples = content.get('examples')
    labels = content.get('labels')
    if (
        labels is not None
        and len(labels)
        and not -1 <= labels.min() <= labels.max() < dataset.N_CLASSES
    ):
        raise InputError(f'labels of its buffer should be of {dataset.N_CLASSES} classes')
    has_images = hasattr(dataset, 'images') and not hasattr(dataset, 'num_inputs')
    if examples is not None and getattr(model.buffer, 'raw', False) and has_images:
        if examples.is_floating_point():
            examples = (examples * 255).round().to(torch.uint8).permute(0, 2, 3, 1)
        if examples.dtype != torch.uint8 or examples.shape[1:3] != tuple(dataset.SIZE):
            raise InputError(
                f'examples of its buffer should be images of {tuple(dataset.SIZE)} pixels'
            )
        content = {**content, 'examples': examples}
    model.load_buffer(content)
