"""Devices, seeds, folders."""

import random

import numpy as np
import pytest
import torch

from core import environment as conf
from core.environment import (
    base_path,
    choose_device,
    get_checkpoint_path,
    get_device,
    set_random_seed,
)
from tests.conftest import refused


@pytest.fixture(autouse=True)
def no_run(monkeypatch):
    """Set the process back to before any run."""
    monkeypatch.setattr(
        conf, '_run', {'device': None, 'base_path': './data/', 'checkpoint_path': './checkpoints/'}
    )


@pytest.fixture
def twelve_gpus(monkeypatch):
    """A pretended machine of 12 GPUs, of which number 10 has most memory free."""
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 12)
    monkeypatch.setattr(torch.cuda, 'mem_get_info', lambda i: (100 if i == 10 else i, 100))


def test_without_a_gpu_the_cpu_is_taken_and_others_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    assert get_device() == get_device('cpu') == torch.device('cpu')
    for wanted in ('cuda', '0', 'cuda:0', 'gpu', '-1', ''):
        with refused(f'--device {wanted}', '0 CUDA devices', 'use cpu'):
            get_device(wanted)


def test_gpus_by_number_and_the_freest_by_default(twelve_gpus):
    for wanted in (None, 'cuda', '10', 'cuda:10'):
        assert get_device(wanted) == torch.device('cuda:10')
    assert get_device('cpu') == torch.device('cpu')
    for wanted in ('12', '3,12', '1,1', '0,cpu'):
        with refused(f'--device {wanted}', '12 CUDA devices', '0..11'):
            choose_device(wanted)


def test_a_run_that_has_begun_stays_on_its_device(twelve_gpus):
    """Methods written for Mammoth ask again in the middle of a run."""
    choose_device('4')
    assert get_device() == torch.device('cuda:4')
    assert get_device('2') == torch.device('cuda:2')
    assert get_device() == torch.device('cuda:4')
    choose_device(torch.device('cuda:5'))
    assert get_device() == torch.device('cuda:5')


def test_folders_that_files_of_mammoth_ask_for():
    assert (base_path(), get_checkpoint_path()) == ('./data/', './checkpoints/')
    assert base_path('/some/where') == base_path() == '/some/where/' == base_path('/some/where/')
    assert get_checkpoint_path('here') == 'here/'
    assert base_path() == '/some/where/'


def test_a_seed_fixes_the_three_global_streams():
    def draw(seed):
        set_random_seed(seed)
        return random.random(), np.random.rand(), torch.rand(1).item()

    first = draw(5)
    again = draw(5)
    other = draw(6)
    assert first == again
    assert not set(first) & set(other)
    draw(2**40)  # numpy alone takes 32 bits
    assert torch.backends.cudnn.deterministic
    assert not torch.backends.cudnn.benchmark
