"""A map of counts and a tree of sums, by each engine: `count(source) -> counted`, `merge_counts` adds two.

Ray, Spark and Dask run on the cluster or client that this process is connected to, else on this machine; a
node of a cluster needs scroll. A worker that dies is replaced, and its files are counted again.
"""
import functools
import os
import sys

from scroll.engines.counting import merge_counts

_FAN_IN = 8
_TRIES = 4                              # of Spark, for a task whose worker dies


def _sum_of(parts):
    return functools.reduce(merge_counts, parts, None)


def local(count, sources: list, workers, partitions: int, gpus):
    """In this process, one file after the other."""
    return _sum_of(map(count, sources))


def ray(count, sources: list, workers, partitions: int, gpus: float):
    """A task for each partition; processes stay, and keep their embedder."""
    import ray
    running = ray.is_initialized()
    if not running:
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        os.environ.setdefault('RAY_BACKEND_LOG_LEVEL', 'fatal')
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level='ERROR',
                 runtime_env=dict(env_vars=dict(PYTHONPATH=path)))
    try:
        count_all = ray.remote(num_cpus=1, num_gpus=gpus or None)(lambda part: _sum_of(map(count, part)))
        merge = ray.remote(num_cpus=0)(lambda *parts: _sum_of(parts))
        parts = [count_all.remote(sources[i::partitions]) for i in range(partitions)]
        while len(parts) > 1:
            parts = [merge.remote(*parts[i:i + _FAN_IN]) for i in range(0, len(parts), _FAN_IN)]
        return ray.get(parts[0])
    finally:
        if not running:
            ray.shutdown()


def spark(count, sources: list, workers, partitions: int, gpus):
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
        files = session.sparkContext.parallelize(sources, partitions)
        return files.treeAggregate(None, lambda one, source: merge_counts(one, count(source)), merge_counts)
    finally:
        if running is None:
            session.stop()


def dask(count, sources: list, workers, partitions: int, gpus):
    """A bag of files, reduced by eights."""
    from dask import bag
    from dask.distributed import Client, LocalCluster, get_client
    files = bag.from_sequence(sources, npartitions=partitions)
    counted = files.map(count).reduction(_sum_of, _sum_of, split_every=_FAN_IN)
    try:
        running = get_client()
    except ValueError:                                  # there is none
        with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None,
                          silence_logs='ERROR') as cluster, Client(cluster) as client:
            return client.compute(counted).result()
    return running.compute(counted).result()
