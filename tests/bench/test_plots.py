"""Pictures: what is drawn is what was given, in one look; equal drawings are equal files."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from bench.paper import tables
from bench.paper.experiments import load
from bench.results import plot, plots, style
from core.commands import run_command
from core.rows import append_row
from models import get_model_names
from tests.conftest import ROOT, refused


def test_each_method_has_a_colour_of_its_own_and_third_party_ones_keep_theirs():
    assert set(style.METHODS) == {name.replace('_', '-') for name in get_model_names()}
    _, colours, markers = zip(*style.METHODS.values())
    assert len(set(colours)) == len(set(markers)) == len(style.METHODS)
    assert style.of('er_ace') == style.of('ER-ACE')
    assert style.of('theirs') == style.of('theirs')
    assert (style.name('er_ace'), style.name('theirs')) == ('ER-ACE', 'theirs')


def test_a_cloud_is_a_point_where_all_schedules_agree_and_the_same_file_again(tmp_path, drawn):
    for name in 'ab':
        path = tmp_path / name / 'c.png'
        plots.cloud(path, {'scroll': [98, 98, 98], 'er': [20, 70.5, 40]}, 'title')
    for suffix, magic in (('png', b'\x89PNG'), ('svg', b'<?xml')):
        first, again = ((tmp_path / name / f'c.{suffix}').read_bytes() for name in 'ab')
        assert first == again
        assert first.startswith(magic)
    assert sorted(file.name for file in path.parent.iterdir()) == ['c.png', 'c.svg']
    (axes,) = drawn[0].axes
    assert [sorted(line.get_xdata()) for line in axes.lines] == [[98], [20, 40, 70.5]]
    assert [text.get_text() for text in axes.texts] == [
        '3 schedules: 98.0 %, every time',
        '3 schedules: 20.0 to 70.5 %',
    ]
    assert axes.get_xlim() == (0, 100)


def test_schedules_share_one_scale_of_shares(tmp_path, drawn):
    """Two samples of one class, and one of each of two: 100 % and 50 %."""
    plots.schedule_picture(
        tmp_path / 's.png',
        {'split:2': np.array([[2, 0], [0, 2]]), 'iid': np.ones((2, 2), int)},
        'title',
    )
    *panels, _ = drawn[0].axes
    images = [axes.images[0] for axes in panels]
    shares = [image.get_array().tolist() for image in images]
    assert shares == [[[100, 0], [0, 100]], [[50, 50], [50, 50]]]
    assert {image.get_clim() for image in images} == {(0, 100)}
    assert [axes.get_title() for axes in panels] == ['split:2', 'iid']


def test_the_papers_figure_has_ours_and_the_papers(tmp_path, drawn):
    """No legend entry without points of ours: a page draws a figure whose cells all have rows."""
    experiment = load(ROOT / 'experiments/figure_2_splits.yaml')
    rows = [{'final_accuracy': '38'}] * 2
    tables.figure(
        tmp_path / 'f.png', experiment, {('GDumb', '5-split'): rows, ('GDumb', '50-split'): rows}
    )
    ours, _ = drawn[0].axes
    curves = [list(line.get_xdata()) for line in ours.lines if line.get_linestyle() != 'None']
    assert curves == [[0, 3]]
    assert len(drawn[0].legends[0].get_texts()) == 1
    assert ours.get_ylim()[0] == 0


def test_bars_have_deviations_and_numbers_and_rows_that_were_run(tmp_path, drawn):
    experiment = load(ROOT / 'experiments/lite_comparison.yaml')
    column, other, _ = experiment.columns
    runs = {
        ('ER', column): [{'final_accuracy': '40'}],
        ('MIR', other): [{'final_accuracy': text} for text in ('50', '60')],
    }
    tables.bars(tmp_path / 'b.png', experiment, runs)
    first, second, third = drawn[0].axes
    assert [label.get_text() for label in first.get_yticklabels()] == ['ER', 'MIR']
    (er,), (mir,), none = first.patches, second.patches, third.patches
    assert (er.get_width(), er.get_alpha(), mir.get_width(), mir.get_alpha()) == (40, 0.45, 55, 1)
    assert (er.get_y() < 0 < mir.get_y(), len(none)) == (True, 0)
    assert [text.get_text() for axes in (first, second) for text in axes.texts] == [
        '40.0 (1)',
        '55.0 ± 7.1 (2)',
    ]
    diamonds = [line.get_xdata()[0] for line in first.lines if line.get_marker() == 'D']
    assert diamonds == [77.3, 68.7]
    tables.bars(tmp_path / 'one.png', replace(experiment, columns=[column]), runs)
    assert [len(axes.patches) for axes in drawn[1].axes] == [1]


def row_of(run, model, matrix, **more) -> dict:
    """A row of a run; matrix: accuracy on each task after each task."""
    means = {f'task{i}': np.mean(line) for i, line in enumerate(matrix, 1)}
    names = {'run': run, 'model': model, 'dataset': 'd', 'setting': 'class-il', 'complete': 1}
    accuracies = {'final_accuracy': np.mean(matrix[-1]), 'accuracy_matrix': matrix}
    return means | names | {'schedule': 'split:2', 'buffer_size': 9} | accuracies | more


def lines(axes) -> list:
    return [list(line.get_ydata()) for line in axes.lines if line.get_linestyle() != 'None']


def test_a_run_is_drawn_with_the_online_classifier_where_there_is_one(tmp_path, drawn):
    row = row_of('a', 'm', [[90], [50, 70]]) | {'accuracy_matrix': '[[90], [50, 70]]'}
    path = tmp_path / 'r.svg'
    assert plots.run_picture(path, row | {'online_accuracy_matrix': '[[90], [80, 90]]'}) == path
    along, each, _ = drawn[0].axes
    assert lines(along) == [[90, 60], [90, 85]]
    np.testing.assert_array_equal(each.images[0].get_array().filled(-1), [[90, -1], [50, 70]])
    assert plots.run_picture(path, row | {'accuracy_matrix': '[[90]]'}) is None
    plots.run_picture(path, row | {'accuracy_matrix': '[[90, 10], [50, 70, 60]]'})  # from task 2
    assert list(drawn[1].axes[0].lines[0].get_xdata()) == [2, 3]
    assert drawn[1].axes[1].images[0].get_extent() == [0.5, 3.5, 3.5, 1.5]


@pytest.fixture
def plotted(tmp_path, monkeypatch, capsys):
    """plotted(rows, *flags): (exit code, stdout, stderr) of `scripts/plot.py` on a file of rows."""

    def run(rows, *flags):
        for row in rows:
            file = append_row(tmp_path, row)
        words = ['plot.py', str(file), '--out', str(tmp_path / 'p.png'), *flags]
        monkeypatch.setattr('sys.argv', words)
        return run_command(plot.main), *capsys.readouterr()

    return run


def test_rows_are_drawn_by_group_and_what_is_not_complete_is_left_out(plotted, drawn):
    rows = [
        row_of('a', 'er', [[90], [50, 70]]),
        row_of('b', 'er', [[80], [60, 80]]),
        row_of('c', 'scroll', [[90], [90, 90]], buffer_size=4),
        row_of('d', 'er', [[1], [1, 1]], complete=0),
    ]
    code, out, _ = plotted(rows)
    assert (code, out.splitlines()[0]) == (0, 'drawn: 3 of 4 runs, those that are complete')
    last, along, forgotten, against = drawn[0].axes
    assert [bar.get_width() for bar in last.patches] == [65, 90]
    assert [bar.get_width() for bar in forgotten.patches] == [30, 0]
    assert [text.get_text() for text in last.get_yticklabels()] == ['er, 9', 'scroll, 4']
    assert lines(along) == [[85, 65], [90, 90]]
    assert {line.get_xdata()[0] for line in against.lines} == {9, 4}
    assert drawn[0].get_suptitle() == 'd, class-il, split:2'


@pytest.mark.parametrize(
    'more, flags, word',
    [
        ({}, ('--by', 'colour'), 'colour'),
        ({}, ('--against', 'model'), 'cannot be drawn'),
        ({'complete': 0}, (), 'none is complete'),
        ({'final_accuracy': 'high'}, (), 'cannot be drawn'),
        ({'dataset': None, 'model': None}, (), 'cannot be drawn'),
        ({'accuracy_matrix': '[[9'}, (), 'cannot be drawn'),
        ({}, ('--out', 'x.pdf'), 'ends in .png or .svg'),
    ],
)
def test_rows_that_cannot_be_drawn_are_said(plotted, more, flags, word):
    code, _, err = plotted([row_of('a', 'er', [[90], [50, 70]]) | more], *flags)
    assert code == 2
    assert word in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize('text', ['a,a\n1,2\n', '"', None])
def test_a_file_that_holds_no_rows_is_named(tmp_path, monkeypatch, capsys, text):
    path = tmp_path / 'mine.csv'
    if text:
        path.write_text(text)
    monkeypatch.setattr('sys.argv', ['plot.py', str(path), '--out', str(tmp_path / 'p.png')])
    assert run_command(plot.main) == 2
    assert str(path) in capsys.readouterr().err


@pytest.mark.skipif(not Path('/dev/full').exists(), reason='needs a device that is full')
def test_a_picture_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(Figure, 'savefig', lambda *_, **__: Path('/dev/full').write_text('x' * 9))
    with refused(f'{tmp_path}/c.png', 'No space left'):
        plots.cloud(tmp_path / 'c.png', {'scroll': [98]}, 'title')
    assert list(tmp_path.iterdir()) == []
