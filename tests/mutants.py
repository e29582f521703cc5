#!/usr/bin/env python3
"""Mutation testing: change one word, number or statement of a file at a time and run its tests.

    python tests/mutants.py scroll/ground/grid.py tests/scroll/test_grid.py --sample 80

Print the changes that the tests do not notice; exit code 1 if they notice less than 95 %. The words
of errors and estimates of memory, on lines of their own, stay as they are. Lines of
`tests/mutants.txt` are changes that no test can notice; the comment above each says why.
"""

import argparse
import ast
import contextlib
import io
import os
import random
import shutil
import sys
import tempfile
import time
import tokenize
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# a word and what takes its place; what is not Python then is skipped
TABLE = """
    < | <= | >
    > | >= | <
    <= | <
    >= | >
    == | !=
    != | ==
    + | -
    - | +
    * | //
    // | *
    << | >>
    >> | <<
    += | -=
    -= | +=
    and | or
    or | and
    is | is not
    not |
    True | False
    False | True
    min | max
    max | min
    any | all
    all | any
    if | if not | if 0 and
    while | while not
    with | if 1 or
    return | return None and
    raise |
    continue | pass
    break | pass
"""


def mutants(source: str):
    """Yield ('old line -> new line', its number, changed source)."""
    table = [[word.strip() for word in row.split('|')] for row in TABLE.splitlines()]
    changes = {word: others for word, *others in table}
    lines = source.splitlines(keepends=True)
    edits = []  # (first line, last line, what takes their place)
    for kind, word, (row, start), (_, end), _ in tokenize.generate_tokens(
        io.StringIO(source).readline
    ):
        if kind == tokenize.NUMBER:
            changes[word] = f'({word} + 1)', f'({word} - 1)'
        for other in changes.get(word, []):
            line = lines[row - 1]
            edits.append((row, row, line[:start] + other + line[end:]))
    unchanged = set()  # numbers of lines
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ('InputError', 'check_memory'):
            unchanged.update(range(node.lineno + 1, node.end_lineno + 1))
        statement = isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr))
        if statement and not isinstance(node.value, ast.Constant):  # a docstring
            edits.append((node.lineno, node.end_lineno, ' ' * node.col_offset + 'pass\n'))
    for first, last, text in edits:
        if first in unchanged:
            continue
        changed = ''.join([*lines[: first - 1], text, *lines[last:]])
        with contextlib.suppress(SyntaxError):
            ast.parse(changed)
            yield f'{lines[first - 1].strip()} -> {text.strip()}', first, changed


def run(tests: list) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os._exit(pytest.main(['-x', '--ff', *tests]))


def passes(args: argparse.Namespace, source: str, limit: float | None = None) -> bool:
    """Return whether the tests pass, within `limit` seconds, where `file` holds this source."""
    Path(args.file).write_text(source)
    process = get_context('fork').Process(target=run, args=(args.tests,))
    process.start()
    process.join(limit)
    process.kill()
    return process.exitcode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('file')
    parser.add_argument('tests', nargs='+')
    parser.add_argument(
        '--sample', type=int, help='number of changes, others each time; default: all'
    )
    args = parser.parse_args()
    source = Path(args.file).read_text()
    equivalent = Path(__file__).with_suffix('.txt').read_text().splitlines()
    tried = [mutant for mutant in mutants(source) if mutant[0] not in equivalent]
    random.shuffle(tried)
    tried = tried[: args.sample]
    for library in ('hypothesis', 'scipy.linalg', 'sklearn', 'torch'):  # once, for speed
        import_module(library)
    sys.dont_write_bytecode = True  # of another change
    with tempfile.TemporaryDirectory() as folder:
        ignored = shutil.ignore_patterns('.*', 'data', '__pycache__')
        os.chdir(shutil.copytree(ROOT, f'{folder}/tree', symlinks=True, ignore=ignored))
        sys.path[0] = os.getcwd()
        start = time.monotonic()
        if not passes(args, source):
            sys.exit('the tests fail without a change')
        limit = 10 + 5 * (time.monotonic() - start)
        unnoticed = 0
        for change, line, text in tried:
            if passes(args, text, limit):
                unnoticed += 1
                print(f'{args.file}:{line}: {change}', flush=True)
    print(f'{args.file}: {unnoticed} of {len(tried)} changes unnoticed')
    return int(unnoticed > len(tried) / 20)


if __name__ == '__main__':
    sys.exit(main())
