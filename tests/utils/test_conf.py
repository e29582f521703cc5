"""Devices, seeds, folders."""
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.conftest import refused
from utils.conf import get_device, results_folder, set_random_seed
from utils.schedulers import get_scheduler


def test_without_a_gpu_the_cpu_is_taken(monkeypatch):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    assert get_device() == get_device('cpu') == torch.device('cpu')


@pytest.mark.parametrize('wanted', ['cuda', '0', 'cuda:0', '7', 'gpu', '-1', ''])
def test_a_device_that_is_not_there_is_refused(monkeypatch, wanted):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    with refused(f'--device {wanted}', '0 CUDA devices', 'use cpu'):
        get_device(wanted)


def test_gpus_by_number_and_the_freest_by_default(monkeypatch):
    """On a pretended machine of 12 GPUs, of which number 10 has most memory free."""
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 12)
    monkeypatch.setattr(torch.cuda, 'mem_get_info', lambda i: (100 if i == 10 else i, 100))
    assert get_device() == get_device('cuda') == get_device('10') == get_device('cuda:10') == torch.device('cuda:10')
    assert get_device('cpu') == torch.device('cpu')
    with refused('12 CUDA devices', '0..11'):
        get_device('12')


def test_a_seed_fixes_the_three_global_streams():
    def draw(seed):
        set_random_seed(seed)
        return random.random(), np.random.rand(), torch.rand(1).item()
    first, again, other = draw(5), draw(5), draw(6)
    assert first == again and not set(first) & set(other)
    draw(2 ** 40)                                               # numpy alone takes 32 bits


def test_results_folder():
    args = SimpleNamespace(base_path='data', results_path='out', dataset='d', model='m')
    assert results_folder(args, 'task-il').as_posix() == 'data/out/task-il/d/m'


def test_a_model_without_an_optimiser_has_no_scheduler():
    """Mammoth's `joint` hands in a bare network."""
    assert get_scheduler(torch.nn.Linear(1, 1), SimpleNamespace(lr_scheduler='cosine', n_epochs=3)) is None
