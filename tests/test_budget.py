"""The size of the house is a budget, counted in tokens of code: whoever adds takes something
out.
"""

import subprocess
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MOST = {'product': 193_000, 'tests': 214_700}  # tokens; comments, docstrings and line ends are free
FREE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def tokens(path):
    # a string of three quotes at the start of a statement is a docstring
    count = 0
    formatted = 0  # from Python 3.12 on an f-string is several tokens
    starts = True
    with path.open('rb') as file:
        for token in tokenize.tokenize(file.readline):
            kind = tokenize.tok_name[token.type]
            formatted += {'FSTRING_START': 1, 'FSTRING_END': -1}.get(kind, 0)
            if formatted:
                continue
            if token.type in FREE:
                starts = starts or token.type in (
                    tokenize.NEWLINE,
                    tokenize.INDENT,
                    tokenize.DEDENT,
                )
                continue
            documents = starts and token.type == tokenize.STRING
            count += not (documents and token.string.lstrip('rR').startswith(('"""', "'''")))
            starts = False
    return count


@pytest.mark.parametrize('part', MOST)
def test_the_house_keeps_its_budget(part):
    listed = subprocess.run(
        ['git', 'ls-files', '*.py'], cwd=ROOT, capture_output=True, text=True, check=True
    )
    mine = [
        ROOT / name
        for name in listed.stdout.split()
        if name.startswith('tests/') == (part == 'tests')
    ]
    total = sum(tokens(path) for path in mine if path.is_file())
    assert 10_000 < total <= MOST[part], f'{total} tokens: take something out before you add'
