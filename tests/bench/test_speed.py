"""The benchmark: each stage has its line; its numbers are those of what it measures."""

import sys
from functools import partial

import pytest
import torch

from bench import speed
from bench.speed import BATCH, Row, er_step, fastest
from tests.conftest import save_tiny_integers

STAGES = (
    'a wrong flag',
    'first batch',
    'load a state',
    'in integers',
    'in integers',
    'embedding, exact',
    'buffer of 10,000',
    'learning 20,000 feature vectors',
    'the same, 10 classes',
    'predicting',
    'the same, 100 classes',
    'predicting',
    'the same, 1,000 classes',
    'predicting',
    'one row more',
    'ridge',
    '1,024 numbers',
    'buffer of 0',
    'buffer of 500',
    'adaptation',
    'the same, exact',
    'adaptation in bfloat16',
    '`er`',
    '`er` in bfloat16',
)


@pytest.mark.slow
def test_every_stage_has_its_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv('ONEDNN_MAX_CPU_ISA', 'AVX2')  # so that there are no matrix units
    name = save_tiny_integers(tmp_path / 'tiny.safetensors')
    monkeypatch.setattr(sys, 'argv', ['bench', '--weights', name, '--rounds', '1'])
    speed.main()
    machine, _, _, *lines = capsys.readouterr().out.splitlines()
    assert f'threads {torch.get_num_threads()}' in machine
    for stage, line in zip(STAGES, lines, strict=True):
        cells = line.split(' | ')
        assert stage in cells[0]
        assert 'no matrix units' in line or float(cells[4]) > 0
    assert sum('no matrix units' in line for line in lines) == 3


def test_a_row_has_a_ratio_and_whether_it_meets_its_target():
    assert Row('a', 0.05, 2.0, 'b', 0.1).markdown() == (
        '| a | 50.0 ms | b | 2,000.0 ms | 0.03 | 0.10 | yes |'
    )
    assert Row('a', 3, 2, 'b', 1.1).markdown().endswith('| 1.50 | 1.10 | no |')
    assert Row('a', 3, 2, 'b').markdown().endswith('| 1.50 |  |  |')
    assert Row('a', None, None, 'not here').markdown() == '| a | | not here | | | | |'


@pytest.mark.parametrize(
    'limit, expected',
    [(None, True), ('ALL', True), ('avx2_vnni', True), ('AVX512_CORE', False), ('AVX2', False)],
)
def test_targets_follow_from_what_onednn_may_use(monkeypatch, tmp_path, limit, expected):
    about = tmp_path / 'cpuinfo'
    about.write_text('flags : avx2 avx512_vnni avx_vnni\n')
    monkeypatch.setattr('scroll.embedding.precision.CPU_INFO', about)
    monkeypatch.delenv('ONEDNN_MAX_CPU_ISA', raising=False)
    if limit:
        monkeypatch.setenv('ONEDNN_MAX_CPU_ISA', limit)
    assert speed.has_vnni() == expected


def test_the_fastest_of_several_calls_counts_and_the_first_does_not():
    order = []
    now = [0]
    costs = {'a': iter([1, 50, 20, 40]), 'b': iter([2, 10, 30, 60])}

    def spend(name):
        order.append(name)
        now[0] += next(costs[name])

    a, b = partial(spend, 'a'), partial(spend, 'b')
    assert fastest(a, b, rounds=3, seconds=lambda: now[0]) == [20, 10]
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
