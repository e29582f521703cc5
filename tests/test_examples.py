"""The worked examples run, on pictures made here, and end as they say."""
import re
import sys

import numpy as np
import pytest
from PIL import Image

from core.commands import run_command
from examples import five_sites, photographs


@pytest.fixture
def example(tmp_path, monkeypatch, capsys):
    """The lines that the example prints for so many pictures of each class, with its exit code."""
    def run(**counts):
        random = np.random.default_rng(0)
        for y, (name, count) in enumerate(counts.items()):
            (tmp_path / name).mkdir()
            for i in range(count):
                pixels = random.integers(0, 80, (20, 24, 3)) + 150 * (np.arange(3) == y)
                Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / name / f'{i}.png')
        monkeypatch.setattr(sys, 'argv', ['photographs.py', str(tmp_path)])
        return run_command(photographs.main), *capsys.readouterr()
    return run


def test_a_class_is_added_and_another_taken_out_as_if_it_had_never_been(example):
    code, out, _ = example(red=6, green=6, blue=7)
    *lines, last = out.splitlines()
    digests = [line.split()[-1] for line in lines]
    assert code == 0 and last == 'the same to the last bit' and digests[2] == digests[3] and len(set(digests)) == 3
    assert [re.search(r'(\d) classes', line)[1] for line in lines] == ['2', '3', '2', '2'] and '100.0 % right' in lines[1]


def test_five_sites_end_in_the_model_of_all_and_a_difference_is_a_sample(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['five_sites.py', str(tmp_path / 'sent')])
    assert run_command(five_sites.main) == 0
    out = capsys.readouterr().out
    assert 'is that of one that had all data' in out and 'the difference is that very image' in out
    assert run_command(five_sites.main) == 2 and 'is there already' in capsys.readouterr().err


def test_too_few_pictures_are_one_line(example):
    code, _, error = example(red=6, green=1, blue=2)
    assert code == 2 and 'two photographs' in error and len(error.splitlines()) == 1
