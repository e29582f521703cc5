"""Spark: an RDD of files, summed by `treeAggregate`; of spark-submit on its cluster, else on this machine."""
import os
import sys

from scroll.engines.counting import together

_TRIES = 4                              # of a task whose worker dies; local masters have one by themselves


def total(counter, sources: list, workers, partitions: int, gpus):
    """The sum of `counter(source)`; of a cluster each node needs scroll."""
    from pyspark.sql import SparkSession
    running = SparkSession.getActiveSession()
    session = running or _session(SparkSession.builder, workers)
    try:
        files = session.sparkContext.parallelize(sources, partitions)
        return files.treeAggregate(None, lambda sum_, source: together(sum_, counter(source)), together)
    finally:
        if running is None:
            session.stop()


def _session(builder, workers):
    os.environ.setdefault('PYSPARK_PYTHON', sys.executable)
    builder = builder.appName('scroll').config('spark.ui.enabled', 'false') \
        .config('spark.ui.showConsoleProgress', 'false')
    if 'SPARK_ENV_LOADED' not in os.environ:            # not under spark-submit, which knows its master
        os.environ.setdefault('SPARK_LOCAL_IP', '127.0.0.1')
        builder = builder.master(f'local[{workers or "*"},{_TRIES}]').config('spark.log.level', 'ERROR')
    return builder.getOrCreate()
