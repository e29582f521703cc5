"""The benchmark: each line is there, with a target; its numbers are those of what it measures."""
import json
import sys

import numpy as np
import pytest
import torch

from bench.speed import command as bench
from bench.speed import memory, training
from bench.speed.timing import Line, fastest, of_command, operations
from scroll.embedding.images import Preprocessing
from tests.conftest import save_tiny_integers
from tests.scroll.conftest import tiny_net

STAGES = ('online stage', 'online stage, cached', 'embedding in integers', 'exact statistics', 'herding buffer',
          'hash buffer', *(f'features {what}, d = 768, {head}' for head in ('ridge', 'lda') for what in ('learned', 'removed')), 'adaptation', '`er`', '`derpp`', '`er_ace`', '`mir`', '`gem`', 'few pixels', 'reduced-resnet18',
          'loader', '0 workers', '2 workers', '8 workers', 'evaluation', '`--help`', 'seq-folder', 'seq-digits',
          '10,000 features', 'a tenth')
TARGETS = {**{stage: 1.0 for stage in STAGES if 'd = 768' in stage}, 'embedding in integers': 1 / 0.9, 'adaptation': 1 / 1.5, 'reduced-resnet18': 2 / 3, 'loader': 0.1,
           'evaluation': 1 / 0.9, '`--help`': 1.0, 'seq-folder': 5.0, 'seq-digits': 5.0, '10,000 features': 1000}          # those that were set before anything was measured


@pytest.fixture
def bench_of(monkeypatch, capsys, tmp_path):
    """stdout of the benchmark with a tiny psi."""
    def run(*words):
        name = save_tiny_integers(tmp_path / 'tiny.safetensors')
        fixed = ['bench', '--weights', name, '--rounds', '1', '--images', '500', '--features', '10000']
        monkeypatch.setattr(sys, 'argv', [*fixed, *words])
        bench.main()
        return capsys.readouterr().out.splitlines()
    return run


@pytest.mark.slow
def test_every_stage_has_its_line_and_says_whether_its_target_is_met(bench_of):
    machine, *lines = map(json.loads, bench_of('--json'))
    assert machine['gigaflops'] > 0 and machine['threads'] == torch.get_num_threads()
    told = [f"{line['stage']} {line['against']}" for line in lines]
    assert [stage in text for stage, text in zip(STAGES, told, strict=True)] == [True] * len(STAGES), told
    for stage, line in zip(STAGES, lines):
        value = line['ours'] if line['beside'] is None else line['ours'] / line['beside']
        assert value > 0 and line['target'] == TARGETS.get(stage), line
        assert line['met'] is (value <= TARGETS[stage] if stage in TARGETS else None), line
        assert line['share'] is None or 0 < line['share'] < 1.5, line


@pytest.mark.parametrize('line, expected', [
    (Line('a', 0.05, 2.0, 'b', 0.1, share=0.5, peak='product'), '| a | 50 ms | b | 2.00 s | 0.03 | 0.10 | yes | 50% (product) |'),
    (Line('a', 700, unit='MB', target=600), '| a | 700 MB |  |  |  | 600 MB | no |  |'),
    (Line('a', 3.0, 1.5, 'b'), '| a | 3.00 s | b | 1.50 s | 2.00 |  |  |  |')])
def test_a_line_is_a_row_of_the_table(line, expected):
    assert bench.shown(line) == expected


def test_the_fastest_of_several_calls_counts_and_the_first_does_not():
    order, now, costs = [], [0], dict(a=iter([1, 50, 20, 40]), b=iter([2, 10, 30, 60]))

    def spend(name):
        order.append(name)
        now[0] += next(costs[name])
    assert fastest(lambda: spend('a'), lambda: spend('b'), rounds=3, seconds=lambda: now[0]) == [20, 10]
    assert ''.join(order) == 'abababab'


def test_a_command_that_fails_is_no_measurement():
    assert of_command([sys.executable, '-c', 'sum(range(10 ** 6))'], 1) > 0
    with pytest.raises(Exception, match='non-zero exit status'):
        of_command([sys.executable, '-c', 'raise SystemExit(3)'], 1)


def test_operations_are_those_of_products():
    a, b = torch.rand(3, 5), torch.rand(5, 7)
    assert operations(lambda: a @ b) == 2 * 3 * 5 * 7


@pytest.mark.parametrize('name', training.PASSES)
def test_what_stands_beside_a_step_are_the_passes_that_its_method_makes(name):
    net, seen, images = tiny_net(), [], np.random.default_rng(0).integers(0, 256, (600, 16, 16, 3), dtype=np.uint8)
    method = training.make_method(name, net, Preprocessing(16), images)
    before = method.net.get_params()
    method.net.register_forward_pre_hook(lambda net, given: seen.append((len(given[0]), torch.is_grad_enabled())))
    method.step()
    trained, looked = training.PASSES[name]
    assert sorted(seen) == sorted([(n, True) for n in trained] + [(n, False) for n in looked])
    assert not torch.equal(before, method.net.get_params())


def test_memory_is_watched_from_a_tenth_of_the_stream_on(monkeypatch):
    monkeypatch.setattr(memory, 'DIM', 8)
    seen = []
    monkeypatch.setattr(memory, 'peak', lambda: seen.append(0) or 50.0 + len(seen))
    assert memory.main(40_000) == (51.0, 52.0)


def test_the_peak_of_memory_is_the_processes_own():
    before = memory.peak()
    block = np.ones(30_000_000 // 8 * 4)
    assert memory.peak() > 50 and memory.peak() >= before and len(block)
