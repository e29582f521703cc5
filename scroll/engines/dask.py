"""Dask: a bag of files, reduced by a tree; on the client that there is, else on processes of this machine."""
import functools

from scroll.engines.counting import together

_FAN_IN = 8


def total(counter, sources: list, workers, partitions: int, gpus):
    """The sum of `counter(source)`."""
    from dask import bag
    from dask.distributed import Client, LocalCluster, get_client
    files = bag.from_sequence(sources, npartitions=partitions)
    counted = files.map(counter).reduction(_sum, _sum, split_every=_FAN_IN)
    try:
        running = get_client()
    except ValueError:                                  # there is none
        with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None,
                          silence_logs='ERROR') as cluster, Client(cluster) as client:
            return client.compute(counted).result()
    return running.compute(counted).result()


def _sum(parts):
    return functools.reduce(together, parts, None)
