"""Ray Data: a data set of files, `map_batches` over workers that hold an embedder, then a tree of sums."""
import functools
import logging
import os
import pickle
import sys

from scroll.engines.counting import Source, together

_FAN_IN = 8


def total(counter, sources: list, workers, partitions: int, gpus: float):
    """The sum of `counter(source)`, on the cluster that this process is connected to or on this machine."""
    import ray
    from ray.data import ActorPoolStrategy, DataContext

    class Worker:
        """A process that counts files; its embedder is made once, at the first of them."""

        def __call__(self, batch: dict) -> dict:
            return _packed(map(counter, map(Source, batch['path'].tolist(), batch['name'].tolist())))

    running = ray.is_initialized()
    if not running:
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        os.environ.setdefault('RAY_BACKEND_LOG_LEVEL', 'fatal')
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level='ERROR',
                 runtime_env=dict(env_vars=dict(PYTHONPATH=path)))
    logging.getLogger('ray.data').setLevel(logging.ERROR)
    context = DataContext.get_current()
    context.enable_progress_bars, shown = False, context.enable_progress_bars
    try:
        files = ray.data.from_items([source._asdict() for source in sources], override_num_blocks=partitions)
        parts = files.map_batches(Worker, batch_size=None, num_cpus=1, num_gpus=gpus or None,
                                  compute=ActorPoolStrategy(min_size=1, max_size=workers))
        left = partitions
        while left > _FAN_IN:
            parts, left = parts.map_batches(_merged, batch_size=_FAN_IN, num_cpus=0), -(-left // _FAN_IN)
        return functools.reduce(together, (pickle.loads(row['part']) for row in parts.iter_rows()), None)
    finally:
        context.enable_progress_bars = shown
        if not running:
            ray.shutdown()


def _merged(batch: dict) -> dict:
    return _packed(map(pickle.loads, batch['part']))


def _packed(parts) -> dict:
    """One row: the sum of some counts, pickled by a process of this run for a process of this run."""
    return dict(part=[pickle.dumps(functools.reduce(together, parts, None))])
