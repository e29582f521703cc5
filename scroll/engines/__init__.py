"""Learn where the data are: Ray, Spark or Dask decide where a file is counted; the sums are the same.

    python -m scroll learn --from 'day*/*.parquet' --engine ray --workers 3 -o state.npz

Statistics are integers that add up in any order, so an engine needs a map of `Counter(file) -> Count` and
a reduce of `merge(Count, Count) -> Count` (`scroll.engines.counting`). Ray, Spark and Dask run on the cluster
or client that this process is connected to, else on this machine; a node of a cluster needs scroll. A worker
that dies is replaced, and its files are counted again; a file lost, or counted twice, is noticed.
"""
import os
import sys

from scroll.arguments import not_installed, one_of, whole
from scroll.engines.counting import Counter, ReturningErrors, check_complete, find, merge, names_in, sum_of
from scroll.errors import InputError
from scroll.state import State

LOCAL = 'local'
_FAN_IN = 8
_TRIES = 4                              # of Spark, for a task whose worker dies
__all__ = 'ENGINES', 'LOCAL', 'Counter', 'find', 'names_in', 'total'


def _local(count, sources: list, workers):
    """In this process, one file after the other."""
    return sum_of(map(count, sources))


def _ray(count, sources: list, workers):
    """A task for each file."""
    import ray
    running = ray.is_initialized()
    if not running:
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        os.environ.setdefault('RAY_BACKEND_LOG_LEVEL', 'fatal')
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level='ERROR',
                 runtime_env=dict(env_vars=dict(PYTHONPATH=path)))
    try:
        one, some = ray.remote(lambda source: count(source)), ray.remote(lambda *parts: sum_of(parts))
        parts = [one.remote(source) for source in sources]
        while len(parts) > 1:
            parts = [some.remote(*parts[i:i + _FAN_IN]) for i in range(0, len(parts), _FAN_IN)]
        return ray.get(parts[0])
    finally:
        if not running:
            ray.shutdown()


def _spark(count, sources: list, workers):
    """`treeAggregate` over files; the session of spark-submit, where there is one."""
    from pyspark.sql import SparkSession
    running = SparkSession.getActiveSession()
    os.environ.setdefault('PYSPARK_PYTHON', sys.executable)
    builder = SparkSession.builder.appName('scroll').config('spark.ui.enabled', 'false') \
        .config('spark.ui.showConsoleProgress', 'false')
    if 'SPARK_ENV_LOADED' not in os.environ:            # not under spark-submit, which knows its master
        os.environ.setdefault('SPARK_LOCAL_IP', '127.0.0.1')
        builder = builder.master(f'local[{workers or "*"},{_TRIES}]').config('spark.log.level', 'ERROR')
    session = running or builder.getOrCreate()
    try:
        files = session.sparkContext.parallelize(sources, len(sources))
        return files.treeAggregate(None, lambda one, source: merge(one, count(source)), merge)
    finally:
        if running is None:
            session.stop()


def _dask(count, sources: list, workers):
    """A bag of files, reduced by eights."""
    from dask import bag
    from dask.distributed import Client, LocalCluster, get_client
    files = bag.from_sequence(sources, npartitions=len(sources))
    counted = files.map(count).reduction(sum_of, sum_of, split_every=_FAN_IN)
    try:
        running = get_client()
    except ValueError:                                  # there is none
        with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None,
                          silence_logs='ERROR') as cluster, Client(cluster) as client:
            return client.compute(counted).result()
    return running.compute(counted).result()


ENGINES = dict(local=_local, ray=_ray, spark=_spark, dask=_dask)


def total(engine: str, counter: Counter, sources: list, workers: int = None) -> State:
    """The sum of what `counter` counts in each source, each of which counts once.

    Args:
        engine: of `ENGINES`. workers: processes; None: the engine's default; ignored where an engine runs
            already.

    Raises:
        InputError: the engine is not installed or gave up, a file cannot be counted (which), or not each file
            was counted once.
    """
    one_of('engine', engine, ENGINES)
    if workers is not None:
        whole('workers', workers, 1)
    if workers and engine == LOCAL:
        raise InputError(f'--workers {workers}: --engine {LOCAL} is one process')
    try:
        out = ENGINES[engine](ReturningErrors(counter), sources, workers)
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
    return out.state
