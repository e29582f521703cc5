"""Pictures: what is drawn is what was given, in one look; equal drawings are equal files."""

import numpy as np

from bench.paper import tables
from bench.paper.experiments import load
from bench.results import plots, style
from models import get_model_names
from tests.conftest import ROOT


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
