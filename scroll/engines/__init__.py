"""Learn where the data are: Ray, Spark or Dask decide where a file is counted; the sums are the same.

    python -m scroll learn --from 'day*/*.parquet' --engine ray --workers 3 -o state.npz

Statistics are integers that add up in any order, so an engine needs no more of this project than
`Counter(file) -> counted` and `merge_counts(counted, counted) -> counted` (`scroll.engines.counting`): a map
and a reduce (`scroll.engines.running`). Counts are known by name and content: a task that an engine runs
twice counts once, and one that it loses is noticed.
"""
from scroll.arguments import not_installed, number, one_of, whole
from scroll.engines import running
from scroll.engines.counting import Counter, ReturningErrors, check_complete
from scroll.errors import InputError
from scroll.files.statistics import StatisticsFile

LOCAL, RAY = 'local', 'ray'
ENGINES = (LOCAL, RAY, 'spark', 'dask')


def total(engine: str, counter: Counter, sources: list, workers: int = None, partitions: int = None,
          gpus: float = 0) -> StatisticsFile:
    """The sum of what `counter` counts in each source, each of which counts once.

    Args:
        engine: of `ENGINES`. workers: processes; None: the engine's default; ignored where an engine runs
            already. partitions: parts that the sources are dealt into, one worker each; None: one each. gpus:
            share of a GPU for each worker, of ray alone.

    Returns:
        The statistics, with the digest of the embedder as `psi` and the blocks as `parts`.

    Raises:
        InputError: the engine is not installed or gave up, a file cannot be counted (which), or not each file
            was counted once.
    """
    one_of('engine', engine, ENGINES)
    number('gpus', gpus)
    for name, value in (('workers', workers), ('partitions', partitions)):
        if value is not None:
            whole(name, value, 1)
    if gpus and engine != RAY:
        raise InputError(f'--gpus {gpus:g}: only --engine {RAY} gives GPUs to its workers')
    if engine == LOCAL and (workers or partitions):
        raise InputError(f'--workers and --partitions are of an engine; --engine {LOCAL} is one process')
    try:
        out = getattr(running, engine)(ReturningErrors(counter), sources, workers,
                                       min(partitions or len(sources), len(sources)), gpus)
    except ModuleNotFoundError as error:
        raise not_installed(f'--engine {engine}', error.name, engine) from error
    except InputError:
        raise
    except Exception as error:          # workers killed too often, no Java, no memory
        first = next(iter(str(error).strip().splitlines()), '')
        raise InputError(f'--engine {engine} gave up, nothing was counted ({type(error).__name__}: '
                         f'{first[:300]})') from error
    if isinstance(out, InputError):
        raise out
    check_complete(out, sources)
    return out
