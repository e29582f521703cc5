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

_UNNEEDED = ['utils.buffer.Buffer', 'numpy.ndarray', 'numpy.dtype']
for _module in ('numpy.core.multiarray', 'numpy._core.multiarray'):
    _UNNEEDED += [f'{_module}.scalar', f'{_module}._reconstruct']


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
        safe = [argparse.Namespace, *((_Unneeded, name) for name in _UNNEEDED)]
        with torch.serialization.safe_globals(safe):
            return torch.load(path, map_location='cpu', weights_only=True)
    except Exception as error:  # damaged files raise almost anything
        reason = f'damaged? {type(error).__name__}: {error}'
        name = re.search(r'GLOBAL (\S+)', str(error))
        if name and isinstance(error, pickle.UnpicklingError):
            reason = f'it names {name[1]}, which is not plain data'
        raise InputError(
            f'{path}: not a checkpoint of plain data ({" ".join(reason.split())[:300]})'
        ) from error
