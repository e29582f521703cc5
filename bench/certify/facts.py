"""What a certificate says of the machine that made it, and of many digests."""
import platform

import numpy as np
import torch

from scroll.embedding.machine import kind_of_machine


def about_machine() -> dict:
    """What bits may depend on besides data and arguments."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return dict(processor=kind_of_machine(), gpu=gpu, torch=torch.__version__,
                numpy=np.__version__, python=platform.python_version(), threads=torch.get_num_threads())


def single(digests) -> str:
    """The digest, if all are the same, but for those that are None; else how many there are."""
    distinct = {digest for digest in digests if digest is not None}
    return distinct.pop() if len(distinct) == 1 else f'{len(distinct)} different digests'
