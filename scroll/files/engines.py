"""Learn where the data are: Ray, Spark or Dask decide where a file is counted; the sums are the
same.

    python -m scroll learn --from 'day*/*.parquet' --engine ray --workers 3 -o state.npz

An engine maps `Counter(file) -> Count` and reduces by `merge(Count, Count) -> Count`, on the
cluster or client that this process is connected to, else on this machine; a node of a cluster needs
scroll. A worker that dies is replaced; a file lost, or counted twice, is noticed.
"""

import functools
import glob
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from scroll.embedding.named import embedder_of
from scroll.files import features
from scroll.files.learning import learn_file, open_for
from scroll.ground.archive import read_errors
from scroll.ground.arguments import not_installed, one_of, whole
from scroll.ground.errors import InputError, prefixed
from scroll.ground.progress import Progress
from scroll.learners.learner import Scroll
from scroll.learners.state import State
from scroll.sums.parts import one_part

LOCAL = 'local'
_FAN_IN = 8
_TRIES = 4  # of Spark, for a task whose worker dies


class Count(NamedTuple):
    """Sums of files: a `State` of statistics, and the files (sources) that were counted."""

    state: State
    sources: tuple[str, ...]


def find(patterns: list[str]) -> list[str]:
    """Return paths and URLs that match any of these patterns (`dir/*.parquet`,
    `s3://bucket/**/*.npz`), each once, sorted; InputError where none matches."""
    paths = set()
    for pattern in patterns:
        if '://' in pattern:
            with _file_system(pattern) as fsspec:
                files, path = fsspec.core.url_to_fs(pattern)
                matching = [files.unstrip_protocol(file) for file in files.glob(path)]
        else:
            matching = [os.path.abspath(path) for path in glob.glob(pattern, recursive=True)]
        if not matching:
            raise InputError(f'--from {pattern}: no file matches')
        paths.update(matching)
    return sorted(paths)


@contextmanager
def _file_system(url: str) -> Iterator:
    """Give fsspec to the block; any error there is an InputError, since each kind of store has its
    own errors."""
    try:
        import fsspec
    except ModuleNotFoundError:
        raise InputError(
            f'{url}: URLs need fsspec, which is not installed: pip install fsspec'
        ) from None
    with read_errors(url):
        yield fsspec


@contextmanager
def _local_copy(source: str) -> Iterator[str]:
    """Give a path on this machine to the block: for a URL that of a copy, deleted afterwards."""
    if '://' not in source:
        yield source
        return
    with tempfile.TemporaryDirectory() as folder, prefixed(source):
        cache = {'cache_storage': folder}
        with _file_system(source) as fsspec:
            path = fsspec.open_local(f'simplecache::{source}', simplecache=cache)
        yield path


@dataclass(frozen=True)
class Counter:
    """Counts a file of features; plain data, so that any process can be given it.

    Attributes:
        params: those of `Scroll`, without buffer and keys.
        columns: other names of columns, as of `scroll.files.learning.learn`.
        split: the samples to take, as there.
        size: the samples of a block, as there.
        names: names of the columns of features, in order (`names_in`).
        embedder: backbone for files of images, as `embedder_of` takes it; '' for features.
    """

    params: dict
    columns: dict | None = None
    split: str | None = None
    size: int = features.BLOCK
    names: tuple | None = None
    embedder: str = ''

    def __call__(self, source: str) -> Count | InputError:
        """Count a file. An InputError is returned, so that no engine takes it for a failure to be
        tried again, or wraps it."""
        try:
            return self._counted(source)
        except InputError as error:
            return error

    def _counted(self, source: str) -> Count:
        learner = Scroll(embedder_of(self.embedder), **self.params)
        with _local_copy(source) as path:
            (file,) = open_for(learner, [path], self.columns, self.names)
            # there may be nothing to learn
            learner.set_state(learner.empty_state(file.dim, file.names))
            learn_file(learner, file, self.split, self.size)
        statistics = learner.statistics_
        boolean = learner.classes_.dtype == bool
        parts = one_part(statistics)
        state = State(None, learner.psi(), statistics, parts=parts, boolean=boolean)
        return Count(state, (source,))


def names_in(source: str, columns: dict | None = None) -> tuple | None:
    """Return the names of the columns of X in a file of features; None where it is one column."""
    with _local_copy(source) as path:
        return features.open_files([path], columns)[0].names


def merge(one, two):
    """Add two counts; neither is changed, since an engine may use them again. None counts nothing;
    the first error stays, and an error of the sum is returned, too."""
    if two is None or isinstance(one, InputError):
        return one
    if one is None or isinstance(two, InputError):
        return two
    try:
        with prefixed(f'{one.sources[0]}, {two.sources[0]}'):
            return Count(one.state.merged(two.state), one.sources + two.sources)
    except InputError as error:
        return error


def sum_of(counts):
    """Add any number of counts; None for none."""
    return functools.reduce(merge, counts, None)


def _local(count, sources: list, workers):
    """Count in this process, one file after the other."""
    return sum_of(map(count, Progress('Learning, files', len(sources)).over(sources)))


def _ray(count, sources: list, workers):
    """Count each file in a task."""
    import ray

    running = ray.is_initialized()
    try:
        if not running:
            path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
            os.environ.setdefault('RAY_BACKEND_LOG_LEVEL', 'fatal')
            ray.init(
                num_cpus=workers,
                include_dashboard=False,
                log_to_driver=False,
                logging_level='ERROR',
                runtime_env={'env_vars': {'PYTHONPATH': path}},
            )

        @ray.remote  # which takes functions alone: `count` is an object
        def count_file(source: str):
            return count(source)

        @ray.remote
        def add(*parts):
            return sum_of(parts)

        parts = [count_file.remote(source) for source in sources]
        while len(parts) > 1:
            parts = [add.remote(*parts[i : i + _FAN_IN]) for i in range(0, len(parts), _FAN_IN)]
        return ray.get(parts[0])
    finally:
        if not running:
            ray.shutdown()


def _spark(count, sources: list, workers):
    """Aggregate over files as a tree, in the session of spark-submit, where there is one."""
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    os.environ.setdefault('PYSPARK_PYTHON', sys.executable)
    builder = (
        SparkSession.builder.appName('scroll')
        .config('spark.ui.enabled', 'false')
        .config('spark.ui.showConsoleProgress', 'false')
    )
    if 'SPARK_ENV_LOADED' not in os.environ:  # not under spark-submit, which knows its master
        os.environ.setdefault('SPARK_LOCAL_IP', '127.0.0.1')
        builder = builder.master(f'local[{workers or "*"},{_TRIES}]').config(
            'spark.log.level', 'ERROR'
        )
    session = None
    try:
        session = running or builder.getOrCreate()
        files = session.sparkContext.parallelize(sources, len(sources))
        return files.treeAggregate(None, lambda one, source: merge(one, count(source)), merge)
    finally:
        if running is None and session is not None:
            session.stop()


def _dask(count, sources: list, workers):
    """Reduce a bag of files, by eights."""
    from dask import bag
    from dask.distributed import Client, LocalCluster, get_client

    files = bag.from_sequence(sources, npartitions=len(sources))
    counted = files.map(count).reduction(sum_of, sum_of, split_every=_FAN_IN)
    try:
        running = get_client()
    except ValueError:  # there is none
        with (
            LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                dashboard_address=None,
                silence_logs='ERROR',
            ) as cluster,
            Client(cluster) as client,
        ):
            return client.compute(counted, sync=True)
    return running.compute(counted, sync=True)


ENGINES = {'local': _local, 'ray': _ray, 'spark': _spark, 'dask': _dask}


def total(engine: str, counter: Counter, sources: list, workers: int | None = None) -> State:
    """Count all files, each once, and return the sum.

    Args:
        engine: one of `ENGINES`.
        counter: counts a file.
        sources: paths or URLs.
        workers: processes; None: the engine's default; ignored where an engine runs already.

    InputError: the engine is not installed or gave up, a file cannot be counted (which), or not
    each file was counted once."""
    one_of('engine', engine, ENGINES)
    if workers is not None:
        whole('workers', workers, 1)
    if workers and engine == LOCAL:
        raise InputError(f'--workers {workers}: --engine {LOCAL} is one process')
    try:
        out = ENGINES[engine](counter, sources, workers)
    except ModuleNotFoundError as error:
        raise not_installed(f'--engine {engine}', str(error.name), engine) from error
    except InputError:
        raise
    except Exception as error:  # workers killed too often, no Java, no memory
        first = next(iter(str(error).strip().splitlines()), '')
        raise InputError(
            f'--engine {engine} gave up, nothing was counted ({type(error).__name__}: '
            f'{first[:300]})'
        ) from error
    if isinstance(out, InputError):
        raise out
    wrong = [source for source in sources if out.sources.count(source) != 1]
    if wrong:
        raise InputError(
            f'{wrong[0]}: was counted {out.sources.count(wrong[0])} times, expected once, as were '
            f'{len(wrong) - 1} others of {len(sources)}: the engine has lost or repeated them'
        )
    return out.state
