"""The size of the house is a budget: whoever adds takes something out."""
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MOST = dict(product=23_500, tests=19_000)           # lines


@pytest.mark.parametrize('part', MOST)
def test_the_house_keeps_its_budget(part):
    names = subprocess.run(['git', 'ls-files', '*.py', '*.sh'], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    mine = [ROOT / name for name in names if name.startswith('tests/') == (part == 'tests')]
    lines = sum(len(path.read_bytes().splitlines()) for path in mine if path.is_file() and not path.is_symlink())
    assert 1000 < lines <= MOST[part], f'{lines} lines: take something out before you add'
