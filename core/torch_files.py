"""Files of `torch.save`, read as plain data without running code from them, and
which of their tensors nobody needs."""
import argparse
import os
import pickle
import re
import zipfile

import torch

from core import safe_pickle
from scroll.errors import InputError

IGNORED = {         # why a tensor of a state dict is not needed: its name
    'batch counter': re.compile(r'(.*\.)?num_batches_tracked'),
    'classifier': re.compile(r'(classifier|_?fc|linear)\..*|.*cls.*'),
}


def load_torch(path):
    """What `torch.save` wrote, as plain data and tensors."""
    if torch.__version__ < (2, 6):
        raise InputError(f'{path}: opening it without running what it names needs torch 2.6 or later; this '
                         f'is {torch.__version__}')
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if sum(entry.file_size for entry in archive.infolist()) > os.stat(path).st_size:
                    raise ValueError('its content is compressed, which torch does not do')
        with torch.serialization.safe_globals([argparse.Namespace, (_PickledBuffer, 'utils.buffer.Buffer'),
                                               *safe_pickle.torch_globals()]):
            return torch.load(path, map_location='cpu', weights_only=True)
    except Exception as error:      # damaged files raise almost anything
        named = re.search(r'GLOBAL (\S+)', str(error)) if isinstance(error, pickle.UnpicklingError) else None
        reason = f'damaged? {type(error).__name__}: {error}'
        if named:
            reason = f'it names {named[1]}, which is not plain data'
        raise InputError(f"{path}: not a checkpoint of plain data "
                         f"({' '.join(reason.split())[:300]})") from error


class _PickledBuffer:
    """Stands for the buffer in a checkpoint of Mammoth's `old_pickle` kind, which is not needed."""

    def __setstate__(self, state):
        pass
