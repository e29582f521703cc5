"""Several processes that share the work of one run: `torchrun --nproc_per_node 2 main.py --model scroll ...`.

Every process goes through the same stream. What takes time is cut into shares, and each process gets the
results of all (`World.gather`, `World.sum`), so that each stands where one process alone would: the
checkpoint of the first is that of all, whatever their number. Only the first prints and writes. They exchange
arrays in host memory, by gloo. A process that cannot continue ends the run; one line says why, whichever
process was the first to know.

Nothing here imports torch before there is a second process.
"""
import os
import sys
import time
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache

from core.arguments import FREE, affects
from scroll.errors import InputError

_LAUNCHED = ('RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT')        # what torchrun tells each process
# the others wait while the first adapts; a process that ends is noticed at once
_PATIENCE = timedelta(days=1)
_running = None


class World:
    """The processes of this run, and which of them this is. As it stands: one process alone."""
    rank, size = 0, 1

    def exchange(self, content: bytes) -> list:
        """What each process gives, in the order of their ranks."""
        return [content]

    def from_first(self, content: bytes) -> bytes:
        """What the first process gives; what others give is ignored."""
        return content

    def share(self, count: int) -> slice:
        """This process's part of `count` items: consecutive, as large as the others' or one larger."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def gather(self, part):
        """All parts of an array, one after the other: (n, ...) of each process -> (sum of n, ...)."""
        import numpy as np
        parts = self.exchange(np.ascontiguousarray(part).tobytes())
        return np.frombuffer(b''.join(parts), part.dtype).reshape(-1, *part.shape[1:])

    def sum(self, array):
        """The sum of an array, int64, over all processes."""
        import numpy as np
        parts = self.exchange(np.ascontiguousarray(array).tobytes())
        return sum(np.frombuffer(part, array.dtype).reshape(array.shape) for part in parts)

    def agree(self, text: str, otherwise: str) -> None:
        """InputError with the words of `otherwise` unless all processes give the same text."""
        if len(set(self.exchange(text.encode()))) > 1:
            raise InputError(otherwise)

    def first_then_others(self, function):
        """Its result; the first process calls it before the others, which then find what it downloads."""
        result = function() if self.rank == 0 else None
        self.exchange(b'')
        return result if self.rank == 0 else function()


class _TorchWorld(World):
    """Processes that `torch.distributed` connects."""

    def __init__(self):
        import torch.distributed as dist
        self.dist, self.rank, self.size = dist, _rank(), processes()
        with _others_may_end():
            dist.init_process_group('gloo', store=dist.PrefixStore('run', _store()), rank=self.rank,
                                    world_size=self.size, timeout=_PATIENCE)

    def exchange(self, content: bytes) -> list:
        parts = [None] * self.size
        with _others_may_end():
            self.dist.all_gather_object(parts, content)
        return parts

    def from_first(self, content: bytes) -> bytes:
        box = [content]
        with _others_may_end():
            self.dist.broadcast_object_list(box, 0)
        return box[0]

    def sum(self, array):
        import torch
        total = torch.from_numpy(array.copy())
        with _others_may_end():
            self.dist.all_reduce(total)
        return total.numpy()


@contextmanager
def _others_may_end():
    """A connection that breaks is no fault of this process."""
    try:
        yield
    except RuntimeError as error:
        raise InputError('another process of this run has ended, see what it says') from error


def processes() -> int:
    """How many processes this run has; 1 unless a launcher says otherwise."""
    return int(os.environ['WORLD_SIZE']) if all(os.environ.get(name) for name in _LAUNCHED) else 1


def _rank() -> int:
    return int(os.environ['RANK']) if processes() > 1 else 0


@cache
def _store():
    """What all processes can read and write before they are connected."""
    from torch.distributed import rendezvous
    return next(rendezvous('env://', timeout=_PATIENCE))[0]


def world() -> World:
    """The processes of this run; one alone before `join`."""
    return _running or World()


def join(args) -> World:
    """Connect the processes of this run. Each takes a GPU of its own where there are enough;
    all but the first write nothing."""
    global _running
    if processes() == 1 or _running:
        return world()
    import torch
    on_this_machine = int(os.environ.get('LOCAL_WORLD_SIZE', processes()))
    if args.device in (None, 'cuda') and torch.cuda.device_count() >= on_this_machine:
        args.device = os.environ['LOCAL_RANK']
        torch.cuda.set_device(int(args.device))
    args.distributed = 'ddp'
    _running = _TorchWorld()
    if _running.rank:
        args.disable_log = args.non_verbose = args.nowand = True
        args.tensorboard, args.savecheck = False, None
    return _running


def agree_on_arguments(args, schedule) -> None:
    """InputError unless all processes run the same: on several machines, each has a
    command line and data of its own."""
    plain = {name: repr(value) for name, value in sorted(vars(args).items())
             if affects(args, name) not in FREE and name != 'class_order'}    # an array, of what is compared
    world().agree(repr((schedule and schedule.digest(), plain)),
                  'the processes were given different arguments, or different data: start all of them with '
                  'the same command')


def leave() -> None:
    """The run has ended well."""
    global _running
    if _running:
        _running.dist.destroy_process_group()
    _running = None


def end(code: int) -> int:
    """The exit code of a command that failed. A process that is connected to others ends here, at
    once: to take torch's connections down when others have ended aborts it, now and then.
    """
    if _running:
        sys.stdout.flush()
        sys.stderr.flush()
        deadline = time.monotonic() + 5
        with suppress(RuntimeError):            # the first has the store, which others still ask who speaks
            ended = _store().add('ended', 1)
            while _running.rank == 0 and ended < _running.size and time.monotonic() < deadline:
                time.sleep(0.02)
                ended = _store().add('ended', 0)
        os._exit(code)
    return code


def mute_others() -> None:
    """Only the first process prints."""
    if _rank():
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)        # libraries print there, too


def say_once(line: str) -> None:
    """Print an error, from whichever process comes first; the others wait for it, since
    the end of one may be that of all."""
    if processes() > 1:
        try:
            if _store().add('errors', 1) > 1:
                _store().wait(['said'], timedelta(seconds=30))
                return
        except RuntimeError:                # the store is gone: better twice than never
            pass
    print(line, file=sys.stderr, flush=True)
    if processes() > 1:
        with suppress(RuntimeError):
            _store().set('said', '1')


def check_processes(model, args) -> None:
    """InputError if the number of processes does not suit the method. `SHARED`: its work can be cut into
    shares."""
    count, shared = processes(), getattr(model, 'SHARED', False)
    if shared and args.distributed == 'dp':
        raise InputError(f'--distributed dp has no effect on --model {args.model}: it trains no network; '
                         'start several processes instead, torchrun --nproc_per_node 2 main.py ...')
    if not shared and (count > 1 or args.distributed == 'ddp'):
        what = f'{count} processes were started' if count > 1 else '--distributed ddp'
        raise InputError(f'{what}: --model {args.model} learns in one process; to split its batches among '
                         'GPUs, start that one with --distributed dp')
    if args.distributed == 'ddp' and not all(os.environ.get(name) for name in _LAUNCHED):
        raise InputError('--distributed ddp: start the processes with '
                         'torchrun --nproc_per_node 2 main.py ...')
