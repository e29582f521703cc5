"""Mammoth's logger in front of our results files."""
import json

import numpy as np
import pytest

from core.rows import read_rows
from utils.loggers import Logger, log_accs

# rows end with the task to come, as Mammoth's do
CLASS_IL = [[80.0, 5.0], [60.0, 90.0, 10.0], [50.0, 70.0, 95.0]]
TASK_IL = [[90.0, 50.0], [85.0, 95.0, 55.0], [92.0, 80.0, 99.0]]


@pytest.fixture
def args(parse, tmp_path):
    return parse('sgd', '--lr', 0.1, '--disable_log', 0, base_path=tmp_path, seed=7)


def test_a_run_of_three_tasks_in_two_files(args, tmp_path):
    logger = Logger(args, 'class-il', 'seq-digits', 'mine')
    for t in range(3):
        pair = CLASS_IL[t][:t + 1], TASK_IL[t][:t + 1]
        logger.log(np.mean(pair, axis=1))
        logger.log_fullacc(pair)
    logger.add_bwt(CLASS_IL, TASK_IL)
    logger.add_forgetting(CLASS_IL, TASK_IL)
    logger.add_fwt(CLASS_IL, [9.0, 1.0, 2.0], TASK_IL, [9.0, 40.0, 45.0])
    paths = logger.write()
    assert paths == [tmp_path / 'results' / setting / 'seq-digits' / 'mine' / 'mean_accs.csv'
                     for setting in ('class-il', 'task-il')]
    expected = [dict(task1=80, task2=75, task3=215 / 3, forward_transfer=(4 + 8) / 2,
                     backward_transfer=(-30 - 20) / 2,
                     forgetting=(30 + 20) / 2, average_incremental_accuracy=(80 + 75 + 215 / 3) / 3),
                dict(task1=90, task2=90, task3=271 / 3, forward_transfer=(10 + 10) / 2,
                     backward_transfer=(2 - 15) / 2,
                     forgetting=(0 + 15) / 2, average_incremental_accuracy=(180 + 271 / 3) / 3)]
    for path, numbers, R in zip(paths, expected, (CLASS_IL, TASK_IL)):
        row, = read_rows(path)
        assert {k: float(row[k]) for k in numbers} == pytest.approx(numbers, abs=1e-4)
        assert list(row)[:6] == ['task1', 'task2', 'task3', 'forward_transfer', 'backward_transfer',
                                 'forgetting']
        assert json.loads(row['accuracy_per_task']) == R[2] and row['seed'] == '7' and row['lr'] == '0.1'


def test_other_settings_have_one_file_and_plain_numbers_and_rows_join_those_of_other_runs(args):
    for value in (50, np.float64(20)):
        logger = Logger(args, 'domain-il', 'rot-mnist', 'mine')
        logger.log(value)
        logger.log(np.float64(25))
        path, = logger.write(dict(anything='else'))
    rows = read_rows(path)
    assert rows[0] == dict(task1='50.0', task2='25.0', average_incremental_accuracy='37.5', anything='else')
    assert [row['task1'] for row in rows] == ['50.0', '20.0']


def test_task_il_is_the_second_of_a_pair(args):
    logger = Logger(args, 'task-il', 'd', 'm')
    logger.log((10, 20))
    logger.log_fullacc(([10], [20]))
    path, = logger.write()
    row, = read_rows(path)
    assert (row['task1'], row['accuracy_per_task']) == ('20.0', '[20.0]')


def test_nothing_is_written_with_disable_log(parse, tmp_path):
    logger = Logger(parse('sgd', '--lr', 0.1, base_path=tmp_path), 'class-il', 'd', 'm')
    logger.log([1, 2])
    assert logger.write() == [] and not list(tmp_path.iterdir())


def test_log_accs_prints_and_logs_what_is_final_for_a_task(args, capsys):
    logger = Logger(args, 'class-il', 'd', 'm')
    for t in range(2):
        log_accs(args, logger, (CLASS_IL[t][:t + 1], TASK_IL[t][:t + 1]), t, 'class-il', epoch=3)
        log_accs(args, logger, (CLASS_IL[t][:t + 1], TASK_IL[t][:t + 1]), t, 'class-il')
        log_accs(args, logger, ([1.0], [2.0]), t, 'class-il', future=True)
    rows = [read_rows(path)[0] for path in logger.write()]
    assert [tuple(row[name] for name in ('task1', 'task2', 'accuracy_per_task')) for row in rows] == \
        [('80.0', '75.0', '[60.0, 90.0]'), ('90.0', '90.0', '[85.0, 95.0]')]
    lines = [line for line in capsys.readouterr().out.splitlines() if 'for 2 task(s)' in line]
    assert lines == ['Accuracy (epoch 3) for 2 task(s): \t [Class-IL]: 75.00 % \t [Task-IL]: 90.00 %',
                     'Accuracy for 2 task(s): \t [Class-IL]: 75.00 % \t [Task-IL]: 90.00 %',
                     'Future Accuracy for 2 task(s): \t [Class-IL]: 1.00 % \t [Task-IL]: 2.00 %']
    log_accs(args, None, ([10.0], [20.0]), 0, 'class-il')           # without a logger it only prints
    assert '[Class-IL]: 10.00 %' in capsys.readouterr().out
