"""Models as files, for whoever wants one later: `--savecheck`, `--loadcheck`, in Mammoth's `safe` format.

A file holds plain data: `model` (the method's `state_dict`), `optimizer`, `args`, `results` (class-il and
task-il accuracies), `buffer` (of methods that replay), as Mammoth's do; and, of ours, `run`: all that the run
needs to go on exactly where it stood.
"""
import argparse
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import torch

from bench.resume.checkpoints import write
from bench.resume.run_state import Incomplete, Position
from core.downloads import fetch
from core.environment import warn_once
from core.plugins import backbone_name
from core.torch_files import IGNORED, load_torch
from scroll.errors import InputError
from utils import to_parsable_obj


def check_writable(args, model) -> None:
    """InputError, before any work, if the files that `--savecheck` asks for could not be written."""
    if not args.savecheck:
        return
    folder = Path(args.checkpoint_path)
    size = sum(t.nbytes for t in model.state_dict().values() if isinstance(t, torch.Tensor))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        raise InputError(f'--savecheck: {folder} cannot be written ({error.strerror}): choose another '
                         '--checkpoint_path') from error
    if free < size:
        raise InputError(f'--savecheck: {folder} has {free / 1e6:,.1f} MB free, the model takes '
                         f'{size / 1e6:,.1f} MB: free some space, or choose another --checkpoint_path')


def make(state, args, arguments: dict, task: int, last: bool):
    """What `--savecheck` asks for after this task, as it is now: (path, content) for `keep`, or None."""
    if args.savecheck != 'task' and not (args.savecheck == 'last' and last):
        return None
    model, record = state.model, state.parts['record']
    day, time, name = record.run.split('-')
    which = 'joint' if getattr(args, 'joint', 0) else task if args.savecheck == 'task' else 'last'
    words = [args.model, args.dataset, args.dataset_config, args.buffer_size, args.n_epochs, f'{day}-{time}',
             name, which]
    words = [args.ckpt_name] * (args.ckpt_name is not None) + words
    path = Path(args.checkpoint_path) / ('_'.join(map(str, words)) + '.pt')
    content = dict(model={name: t.cpu() if isinstance(t, torch.Tensor) else t
                          for name, t in model.state_dict().items()},
                   optimizer=None if model.opt is None else model.opt.state_dict(),
                   args=to_parsable_obj(arguments), results=[record.class_il, record.task_il, {}], run=None)
    if hasattr(getattr(model, 'buffer', None), 'serialize'):
        content['buffer'] = model.buffer.serialize()
    try:
        content['run'] = state.gather(Position(task + 1))
    except Incomplete as error:
        warn_once(f'--savecheck: {args.model} keeps what no file can hold ({error}): a run cannot be '
                  f'continued from {path}')
    return path, content


def keep(path: Path, content: dict) -> None:
    """Write it. InputError if that cannot be."""
    try:
        write(path, content)
    except (OSError, RuntimeError) as error:
        why = getattr(error, 'strerror', None) or ' '.join(str(error).split())
        raise InputError(f'{path} cannot be written ({why})') from error
    print(f'  checkpoint: {path}', flush=True)


def read(path, folder='./checkpoints/') -> dict:
    """The content of such a file, or of one that Mammoth wrote, with its arguments under today's names.

    Args:
        path: or a URL, whose file is kept in `<folder>/fetched`.

    Raises:
        InputError: it cannot be had, or is neither.
    """
    if '://' in str(path):
        with _named(path):
            content = _fetched(path, Path(folder) / 'fetched')
    elif not Path(path).is_file():
        raise InputError(f'--loadcheck {path}: there is no such file')
    else:
        content = load_torch(path)
    if not (isinstance(content, dict) and isinstance(content.get('model'), dict)):
        content = dict(model=content)
    args, run = content.get('args') or {}, content.get('run') or dict(position=[0])
    position = run.get('position') if isinstance(run, dict) else None
    odd = dict(model=not isinstance(content['model'], dict)
               or not all(isinstance(name, str) for name in content['model']),
               args=not isinstance(args, (dict, argparse.Namespace)),
               run=not (isinstance(position, list) and position
                        and all(isinstance(number, int) for number in position)))
    if any(odd.values()):
        raise InputError(f'--loadcheck {path}: not the file of a model '
                         f'({", ".join(name for name in odd if odd[name])})')
    if 'args' in content:
        args = dict(vars(args) if isinstance(args, argparse.Namespace) else args)
        if isinstance(args.get('backbone'), str):
            args['backbone'] = backbone_name(args['backbone'], args)
        content['args'] = args
    return content


def _fetched(url: str, folder: Path):
    """What torch finds in the file at a URL. One in which it finds nothing is not kept."""
    path = fetch(url, folder)
    try:
        return load_torch(path)
    except InputError as error:
        path.unlink(missing_ok=True)
        raise InputError(f'what is at this address is no checkpoint, a page perhaps ({error})') from error


def saved_args(path, folder='./checkpoints/') -> dict:
    """The arguments of the run that wrote the file (`read`), as far as they were given a value."""
    args = read(path, folder).get('args') or {}
    return {name: value for name, value in args.items() if value is not None}


def load(state, args) -> Position:
    """Begin as `--loadcheck` says: with a file's weights and buffer, or, with `--start_from` or to evaluate
    it (`--inference_only`), exactly where its run stood.
    """
    if args.loadcheck is None:
        return Position()
    content, first = read(args.loadcheck, args.checkpoint_path), args.start_from or 0
    run, saved = content.get('run'), content.get('args') or {}
    if run is not None and (first or args.inference_only):
        stood = run['position'][0]
        if first and stood != first:
            raise InputError(f'--loadcheck {args.loadcheck} --start_from {first}: its run stood after task '
                             f'{stood}; give --start_from {stood}')
        _check(args, saved)
        record = state.parts['record']
        with _named(args.loadcheck):
            name, position = record.run, state.restore(run)
        record.run = name  # the one that wrote the file has a row of its own
        print(f'{args.loadcheck}: going on {position}', flush=True)
        return position
    if content['model'] is not None:
        _load_weights(state.model, content['model'], args.loadcheck, bare='args' not in content)
    if 'buffer' in content and hasattr(state.model, 'load_buffer') and hasattr(state.model, 'buffer'):
        with _named(args.loadcheck):
            _load_buffer(state.model, state.dataset, content['buffer'])
    if first:
        with _named(args.loadcheck):
            _continue_rows(state.parts['record'], content.get('results'), first)
    print(f'{args.loadcheck}: its weights are loaded', flush=True)
    return Position()


@contextmanager
def _named(path):
    """Errors say which file it is."""
    try:
        yield
    except InputError as error:
        raise InputError(f'--loadcheck {path}: {error}') from error


def _check(args, saved: dict) -> None:
    """InputError if the file's run was another one."""
    for name in ('model', 'dataset', 'backbone', 'n_splits', 'schedule', 'joint', 'permute_classes',
                 'custom_class_order', 'custom_task_order', 'buffer_size', 'validation', 'input_size',
                 'num_classes', 'seed'):
        here = to_parsable_obj(getattr(args, name, None))
        if name in saved and here != saved[name]:
            raise InputError(f'--loadcheck {args.loadcheck}: its run had --{name} {saved[name]}, this one '
                             f'has {here}')


def _load_weights(model, tensors: dict, path, bare: bool) -> None:
    """A method's tensors by name; of a bare network, all but its classifier."""
    for prefix in ('net.', 'module.', 'backbone.') if bare else ():
        tensors = {name.removeprefix(prefix): t for name, t in tensors.items()}
    tensors = {name.replace('.shortcut.', '.downsample.'): t for name, t in tensors.items()}  # Mammoth's word
    whole = model.net if bare else model
    wanted = {name: t for name, t in whole.state_dict().items()
              if not (bare and IGNORED['classifier'].fullmatch(name))}
    given = {name: t for name, t in tensors.items() if not (bare and IGNORED['classifier'].fullmatch(name))
             # a teacher, which is made when tasks begin
             and getattr(whole, name.split('.')[0], whole) is not None}
    counter = IGNORED['batch counter']
    odd = [f'{name} is missing' for name in wanted if name not in given and not counter.fullmatch(name)]
    odd += [f'{name} is not known here' for name in given
            if name not in wanted and not counter.fullmatch(name)]
    odd += [f'{name} is {tuple(given[name].shape)} and should be {tuple(t.shape)}'
            for name, t in wanted.items()
            if name in given and _kind(given[name]) == _kind(t) and isinstance(t, torch.Tensor)
            and given[name].shape != t.shape]
    odd += [f'{name} is {_kind(given[name])} and should be {_kind(t)}' for name, t in wanted.items()
            if name in given and _kind(given[name]) != _kind(t)]
    if odd:
        more = f' and {len(odd) - 3} more' if odd[3:] else ''
        raise InputError(f'--loadcheck {path} does not fit this run: {", ".join(odd[:3])}{more}')
    whole.load_state_dict({name: t for name, t in given.items() if name in wanted}, strict=False)


def _kind(value) -> str:
    """What a value of a state dict is, as an error says it."""
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    kind = 'complex' if value.is_complex() else 'real' if value.is_floating_point() else 'whole'
    return f'a tensor of {kind} numbers' if value.layout == torch.strided else 'a sparse tensor'


def _load_buffer(model, dataset, content) -> None:
    """The samples of the file's buffer; float images become what our methods keep (`_takes_raw`)."""
    if not isinstance(content, dict):
        warn_once('--loadcheck: the buffer in the file is code and not data (old_pickle), and is left out')
        return
    examples = content.get('examples')
    if examples is not None:
        _check_buffer(model, dataset, content)
    if _takes_raw(model, dataset) and isinstance(examples, torch.Tensor) and examples.is_floating_point():
        content = {**content, 'examples': (examples * 255).round().to(torch.uint8).permute(0, 2, 3, 1)}
    if examples is not None and 0 <= model.buffer.buffer_size < len(examples):
        raise InputError(f'its buffer holds {len(examples)} samples, --buffer_size is '
                         f'{model.buffer.buffer_size}')
    model.load_buffer(content)


def _takes_raw(model, dataset) -> bool:
    """Whether the method's buffer gets uint8 images: third-party loaders give floats."""
    return getattr(model.buffer, 'raw', False) and hasattr(dataset, 'images')


def _check_buffer(model, dataset, content: dict) -> None:
    """InputError if a buffer's samples cannot be of this data set."""
    examples, labels, seen = (content.get(name) for name in ('examples', 'labels', 'num_seen_examples'))
    odd = []
    if _takes_raw(model, dataset):
        shape = tuple(examples.shape[1:]) if isinstance(examples, torch.Tensor) else ()
        size = tuple(dataset.SIZE)
        real = len(shape) in (1, 3) and examples.is_floating_point()
        fits = shape[-len(size):] == size and torch.isfinite(examples).all() if real else \
            shape[:2] == size and examples.dtype == torch.uint8
        if not fits:
            odd += [f'examples, which should be images of {" x ".join(map(str, size))} pixels']
    if labels is not None:
        whole = (isinstance(labels, torch.Tensor) and not labels.is_floating_point()
                 and not labels.is_complex())
        if not whole or len(labels) and not -1 <= labels.min() <= labels.max() < dataset.N_CLASSES:
            odd += [f'labels, which should be of {dataset.N_CLASSES} classes']
    if seen is not None and (not isinstance(seen, int) or seen < 0):
        odd += ['num_seen_examples, which should be a number of samples']
    if odd:
        raise InputError(f'its buffer does not fit this run: {"; ".join(odd)}')


def _continue_rows(record, results, first: int) -> None:
    """The accuracies on the tasks before, where the file has them."""
    if isinstance(results, (list, tuple)) and len(results) > 1:
        try:
            rows = [[[float(a) for a in row] for row in part[:first]] for part in results[:2]]
        except (TypeError, ValueError) as error:
            raise InputError(f'its results are no accuracies ({error})') from error
        if len(rows[0]) == first:
            record.first, (record.class_il, record.task_il) = 0, rows
