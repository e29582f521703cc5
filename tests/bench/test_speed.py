"""The benchmark: each stage has its line; its numbers are those of what it measures."""

import sys
from functools import partial

import pytest
import torch

from bench import speed
from bench.speed import BATCH, Row, er_step, fastest
from tests.conftest import save_tiny_integers

STAGES = (
    'embedding, exact',
    'in integers',
    '10 classes',
    'predicting',
    '100 classes',
    'predicting',
    '1,000 classes',
    'predicting',
    'adaptation',
    'the same, exact',
)


@pytest.mark.slow
def test_every_stage_has_its_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv('ONEDNN_MAX_CPU_ISA', 'AVX2')  # so that there are no units for bfloat16
    name = save_tiny_integers(tmp_path / 'tiny.safetensors')
    monkeypatch.setattr(sys, 'argv', ['bench', '--weights', name, '--rounds', '1'])
    speed.main()
    machine, _, _, *lines = capsys.readouterr().out.splitlines()
    assert f'threads {torch.get_num_threads()}' in machine
    for stage, line in zip(STAGES, lines, strict=True):
        cells = line.split(' | ')
        assert stage in cells[0]
        assert float(cells[4].rstrip(' |')) > 0


def test_a_row_has_a_ratio():
    assert Row('a', 0.05, 2.0, 'b').markdown() == '| a | 50.0 ms | b | 2,000.0 ms | 0.03 |'


def test_the_fastest_of_several_calls_counts_and_the_first_does_not(monkeypatch):
    order = []
    now = [0]
    costs = {'a': iter([1, 50, 20, 40]), 'b': iter([2, 10, 30, 60])}

    def spend(name):
        order.append(name)
        now[0] += next(costs[name])

    monkeypatch.setattr(speed, 'clock', lambda: now[0])
    a, b = partial(spend, 'a'), partial(spend, 'b')
    assert fastest(a, b, rounds=3) == [20, 10]
    assert ''.join(order) == 'abababab'


def test_a_step_of_er_passes_the_batch_and_the_memory_and_updates(tiny_weights):
    method, step = er_step(tiny_weights)
    seen = []
    step()
    before = method.net.get_params()
    method.net.register_forward_pre_hook(
        lambda net, given: seen.append((len(given[0]), torch.is_grad_enabled()))
    )
    step()
    assert seen == [(2 * BATCH, True)]
    assert not torch.equal(before, method.net.get_params())
