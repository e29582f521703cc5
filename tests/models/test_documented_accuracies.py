"""The command in the docstring of each method's file gives the accuracy that stands below it."""

import ast
import re

import pytest

from models import get_model_names
from tests.conftest import ROOT

COMMAND = re.compile(
    r'python main\.py (--model .*?)\n\nAccuracy: (\d+) % \(± (\d+) on other processors\)', re.S
)


@pytest.mark.parametrize('method', get_model_names())
def test_a_method_does_as_well_as_its_file_says(command_line, tmp_path, method):
    path = ROOT / 'models' / f'{method.replace("-", "_")}.py'
    text = ast.get_docstring(ast.parse(path.read_text()))
    flags, accuracy, tolerance = COMMAND.search(text).groups()
    assert flags.split()[:4] == ['--model', method, '--dataset', 'seq-digits']
    code, out, err = command_line(*flags.split(), '--base_path', tmp_path)
    assert code == 0, err
    final = re.search(r'class-il.*: final accuracy ([\d.]+) %', out)[1]
    assert float(final) == pytest.approx(int(accuracy), abs=int(tolerance))
