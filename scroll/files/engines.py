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
from collections import Counter as Times
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
    """What was counted: a `State` of statistics, and the sources that it is of."""

    state: State
    sources: tuple


def find(patterns: list) -> list:
    """Paths and URLs that match any of these patterns (`dir/*.parquet`, `s3://bucket/**/*.npz`),
    each once, sorted; InputError where none matches."""
    paths = set()
    for pattern in patterns:
        if '://' in pattern:
            found = _at_url(pattern, _matching)
        else:
            found = [os.path.abspath(path) for path in glob.glob(pattern, recursive=True)]
        if not found:
            raise InputError(f'--from {pattern}: no file matches')
        paths.update(found)
    return sorted(paths)


def _at_url(url: str, use):
    """use(fsspec, url); InputError for whatever goes wrong, since each kind of store has its own
    errors.
    """
    try:
        import fsspec
    except ModuleNotFoundError:
        raise InputError(
            f'{url}: URLs need fsspec, which is not installed: pip install fsspec'
        ) from None
    with read_errors(url):
        return use(fsspec, url)


def _matching(fsspec, url: str) -> list:
    files, path = fsspec.core.url_to_fs(url)
    return [files.unstrip_protocol(found) for found in files.glob(path)]


@contextmanager
def _here(source: str) -> Iterator[str]:
    """A path on this machine: of what a URL names a copy, for as long as it is needed."""
    if '://' not in source:
        yield source
        return
    with tempfile.TemporaryDirectory() as folder, prefixed(source):
        yield _at_url(
            source,
            lambda fsspec, url: fsspec.open_local(
                f'simplecache::{url}', simplecache={'cache_storage': folder}
            ),
        )


@dataclass(frozen=True)
class Counter:
    """Counts a file of features; plain data, so that any process can be given it.

    Attributes:
        params: of `Scroll`, without buffer and keys. columns, split, size: as of
            `scroll.files.learning.learn`. names: of the columns of features, in order (`names_in`).
        embedder: of files of images, as `embedder_of` takes it; '' for features."""

    params: dict
    columns: dict = None
    split: str = None
    size: int = features.BLOCK
    names: tuple = None
    embedder: str = ''

    def __call__(self, source: str):
        """What a file counts, a `Count`; or the InputError if it cannot be counted: returned, so
        that no engine takes it for a failure to be tried again, or wraps it."""
        try:
            return self._counted(source)
        except InputError as error:
            return error

    def _counted(self, source: str) -> Count:
        learner = Scroll(embedder_of(self.embedder), **self.params)
        with _here(source) as path:
            (file,) = open_for(learner, [path], self.columns, self.names)
            learn_file(learner, file, self.split, self.size)
        dim, psi = (
            (file.dim, '') if not self.embedder else (learner.embedder.dim, learner.embedder.digest)
        )
        counted = getattr(learner, 'statistics_', None) or learner.new_statistics(dim)
        boolean = not counted.total or learner.classes_.dtype.kind == 'b'
        return Count(State(None, psi, counted, parts=one_part(counted), boolean=boolean), (source,))


def names_in(source: str, columns: dict | None = None) -> tuple | None:
    """Names of the columns that X of a file of features is made of; None where it is one column."""
    with _here(source) as path:
        return features.open_files([path], columns)[0].names


def merge(one, two):
    """The sum of two counts; neither is changed, since an engine may use them again. None counts
    nothing; the first error stays, and one of adding them is returned, too."""
    for part, other in ((two, one), (one, two)):
        if part is None or isinstance(other, InputError):
            return other
    try:
        with prefixed(f'{one.sources[0]}, {two.sources[0]}'):
            return Count(one.state.merged(two.state), one.sources + two.sources)
    except InputError as error:
        return error


def sum_of(counts):
    """The sum of any number of counts; None of none."""
    return functools.reduce(merge, counts, None)


def _local(count, sources: list, workers):
    """In this process, one file after the other."""
    return sum_of(map(count, Progress('Learning, files', len(sources)).over(sources)))


def _ray(count, sources: list, workers):
    """A task for each file."""
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
        one, some = (
            ray.remote(count),
            ray.remote(lambda *parts: sum_of(parts)),
        )
        parts = [one.remote(source) for source in sources]
        while len(parts) > 1:
            parts = [some.remote(*parts[i : i + _FAN_IN]) for i in range(0, len(parts), _FAN_IN)]
        return ray.get(parts[0])
    finally:
        if not running:
            ray.shutdown()


def _spark(count, sources: list, workers):
    """`treeAggregate` over files; the session of spark-submit, where there is one."""
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
    """A bag of files, reduced by eights."""
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
            return client.compute(counted).result()
    return running.compute(counted).result()


ENGINES = {'local': _local, 'ray': _ray, 'spark': _spark, 'dask': _dask}


def total(engine: str, counter: Counter, sources: list, workers: int | None = None) -> State:
    """The sum of what `counter` counts in each source, each of which counts once. engine: of
    `ENGINES`.
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
        raise not_installed(f'--engine {engine}', error.name, engine) from error
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
    times = Times(out.sources)
    wrong = [source for source in sources if times[source] != 1]
    if wrong:
        raise InputError(
            f'{wrong[0]}: was counted {times[wrong[0]]} times, expected once, as were '
            f'{len(wrong) - 1} others of {len(sources)}: the engine has lost or repeated them'
        )
    return out.state
