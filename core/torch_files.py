"""Files of `torch.save`, read as plain data without running code from them, and
which of their tensors nobody needs."""

import argparse
import os
import pickle
import re
import zipfile

import torch

from scroll.ground.errors import InputError

IGNORED = {  # why a tensor of a state dict is not needed: its name
    'batch counter': re.compile(r'(.*\.)?num_batches_tracked'),
    'classifier': re.compile(r'(classifier|_?fc|linear)\..*|.*cls.*'),
}

_UNNEEDED = (
    'utils.buffer.Buffer',
    'numpy.ndarray',
    'numpy.dtype',
    'numpy.core.multiarray.scalar',
    'numpy.core.multiarray._reconstruct',
    'numpy._core.multiarray.scalar',
    'numpy._core.multiarray._reconstruct',
)


class _Unneeded:
    """Stands for numpy's values, and for the buffer in Mammoth's `old_pickle` files."""

    def __init__(self, *parts):
        pass

    def __setstate__(self, state):
        pass


def load_torch(path):
    """Read what `torch.save` wrote, as plain data and tensors, without numpy's values. InputError:
    it is damaged (torch itself heeds no checksums), or names code."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if sum(entry.file_size for entry in archive.infolist()) > os.stat(path).st_size:
                    raise ValueError('its content is compressed, which torch does not do')
                if archive.testzip() is not None:
                    raise ValueError('a checksum is wrong')
        known = [argparse.Namespace, *((_Unneeded, name) for name in _UNNEEDED)]
        with torch.serialization.safe_globals(known):
            return torch.load(path, map_location='cpu', weights_only=True)
    except Exception as error:  # damaged files raise almost anything
        named = (
            re.search(r'GLOBAL (\S+)', str(error))
            if isinstance(error, pickle.UnpicklingError)
            else None
        )
        reason = (
            f'it names {named[1]}, which is not plain data'
            if named
            else f'damaged? {type(error).__name__}: {error}'
        )
        raise InputError(
            f'{path}: not a checkpoint of plain data ({" ".join(reason.split())[:300]})'
        ) from error
