"""README.md and docs/: code runs and prints what they say, commands exist, numbers are those of the
rows, words are plain.

A fenced block has a language. `python` blocks of a page run one after the other; of `bash` blocks
each command is checked against its parser. A comment on the line before a block: `<!-- run -->`,
`<!-- run: slow -->`: the commands are run, with the files of the `python` blocks above; `<!-- file:
PATH -->`: it is a file of the project (tests/models/test_third_party_methods.py runs it as one);
`<!-- output -->`: what the block above prints; `<!-- not run: why -->`: left out.
"""

import contextlib
import functools
import glob
import importlib
import io
import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import scroll
from bench.cli.parsing import parse_args
from bench.paper import documents, experiments
from scroll.heads import registry
from tests import notebooks
from tests.conftest import ROOT
from tests.notebooks import FENCE

PAGES = [*documents.documents(ROOT), ROOT / 'CONTRIBUTING.md', ROOT / 'RELEASING.md']
_FOLDERS = 'backbone|bench|core|datasets|experiments|models|scripts|scroll|tests|utils'
_WORDS = re.compile(r'\b(anew|beside|bears|is told|so many)\b', re.I)


class Block(NamedTuple):
    """A fenced block. output: None where the page has none."""

    page: str
    line: int
    language: str
    code: str
    mark: str
    output: str | None = None


def text_of(path: Path) -> str:
    return path.read_text(encoding='utf-8')


def blocks_of(path: Path) -> list:
    text = text_of(path)
    blocks = []
    for match in FENCE.finditer(text):
        mark, language, code = match.groups('')
        if mark == 'output':
            blocks[-1] = blocks[-1]._replace(output=code)
        else:
            line = text[: match.start('language')].count('\n') + 1
            blocks.append(Block(str(path.relative_to(ROOT)), line, language, code, mark))
    return blocks


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
SHELL = [block for block in BLOCKS if block.language == 'bash']


def params(blocks):
    return [
        pytest.param(
            block,
            id=f'{block.page}:{block.line}',
            marks=[pytest.mark.slow] if 'slow' in block.mark else [],
        )
        for block in blocks
    ]


def test_words_are_plain():
    code = [
        path
        for folder in _FOLDERS.split('|')
        if folder != 'tests'
        for path in (ROOT / folder).rglob('*.py')
    ]
    for path in [*PAGES, *code, *ROOT.glob('*.py'), *ROOT.glob('scripts/*.sh')]:
        assert not _WORDS.findall(text_of(path)), path


def test_blocks_links_and_inline_commands_lead_somewhere():
    assert len(BLOCKS) > 20
    assert {block.language for block in BLOCKS} <= {'python', 'bash', 'text', 'yaml'}
    targets = re.findall(r'^([\w-]+):', text_of(ROOT / 'Makefile'), re.M)
    for page in PAGES:
        text = text_of(page)
        prose = FENCE.sub('', text)
        assert text.count('```') == 2 * len(FENCE.findall(text)), page
        for link in re.findall(r'\]\(([^)#]*)(?:#[^)]*)?\)', text):
            web = link.startswith('https://')
            assert web or not link or (page.parent / link).exists(), (page, link)
        for path in re.findall(rf'`(?:python )?((?:{_FOLDERS})/[\w/.*-]+)(?=[`\s])', prose):
            assert glob.glob(str(ROOT / path)), (page, path)
        for target in re.findall(r'`(?:[A-Z_]+=\S+ )?make (\S+?)`', prose):
            assert target in targets, (page, target)
        # this distribution is on no index
        assert not re.search(r'install\s+["\']?scroll-cl', text), page


def test_experiments_of_pages_can_be_loaded(tmp_path):
    for block in BLOCKS:
        if block.language == 'yaml':
            path = tmp_path / 'mine.yaml'
            path.write_text(block.code)
            assert experiments.load(path).cells


@pytest.mark.parametrize(
    'page', sorted({block.page for block in BLOCKS if block.language == 'python'})
)
def test_python_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ('models', 'datasets', 'backbone'):  # what a page registers goes again
        plugins = __import__(folder).PLUGINS
        monkeypatch.setattr(plugins, 'registered', dict(plugins.registered))
    monkeypatch.setattr(registry, 'HEADS', dict(registry.HEADS))
    names = {'__name__': 'page'}
    for block in BLOCKS:
        if (block.page, block.language) == (page, 'python') and not block.mark.startswith(
            'not run'
        ):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile('\n' * block.line + block.code, page, 'exec'), names)
            assert block.output is None or printed.getvalue() == block.output, (
                f'{page}:{block.line}'
            )


@pytest.mark.parametrize('block', params(block for block in SHELL if block.mark.startswith('run')))
def test_commands_print_what_the_page_says(block, tmp_path):
    for path in ROOT.iterdir():  # looks like the repository, for commands that write
        if path.name not in ('data', '.git', '.venv'):
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / 'bin').mkdir()
    (tmp_path / 'bin' / 'python').write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n'
    )
    (tmp_path / 'bin' / 'python').chmod(0o755)
    above = [
        b.code
        for b in BLOCKS
        if b.page == block.page and b.line < block.line and b.language == 'python'
    ]
    environment = dict(
        os.environ, PATH=f'{tmp_path / "bin"}:{os.environ["PATH"]}', OMP_NUM_THREADS='1'
    )
    run = functools.partial(
        subprocess.run, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert run(['python', '-c', '\n'.join(above)]).returncode == 0
    done = run(['bash', '-euc', block.code])
    assert done.returncode == 0, done.stderr
    assert block.output is None or done.stdout == block.output


def commands_of(code: str):
    """Words of each command of a shell block, without comments, variables set before it, and
    redirections.
    """
    for line in code.replace('\\\n', ' ').splitlines():
        words = shlex.split(re.split(r' [|>&]| && ', line)[0], comments=True)
        words = list(itertools.dropwhile(lambda word: re.match(r'[A-Z_]+=', word), words))
        if words and '...' not in words:
            yield words


@functools.cache
def flags_of(script: str, *words: str) -> set:
    """The flags that a command's `--help` names, asked for in this process, since torch takes
    seconds to import.
    """
    if script == 'main.py':
        parser = parse_args(
            ['--model', 'scroll', '--dataset', 'seq-digits'], return_parser_only=True
        )
        return {flag for action in parser._actions for flag in action.option_strings}
    module = 'scroll.__main__'
    if script != 'scroll':
        module = re.search(r"(?:run|import_module)\('([\w.]+)'", text_of(ROOT / script))[1]
    printed = io.StringIO()
    given = sys.argv
    sys.argv = [script, *words, '--help']
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            importlib.import_module(module).main()
    finally:
        sys.argv = given
    return set(re.findall(r'(?<![\w-])--?\w+', printed.getvalue()))


def check_python(words: list):
    if words[0] == '-m' and words[1] != 'scroll':
        assert (ROOT / words[1].replace('.', '/')).with_suffix('.py').is_file(), words
        return None
    if words[0] == '-m':
        words, known = words[3:], flags_of('scroll', words[2])
    else:
        script, *words = itertools.dropwhile(lambda word: not word.endswith('.py'), words)
        if script == 'main.py':
            return None if '--help' in words else parse_args(words)
        known = flags_of(script, *(words[:2] if words[:1] == ['quantise'] else []))
        if Path(script).stem in ('certify', 'schedule', 'tune'):
            known |= flags_of('main.py')
    for word in itertools.takewhile(lambda word: word != '--', words):
        assert not word.startswith('-') or word.split('=')[0] in known, f'{word}: {sorted(known)}'
        assert not word.startswith('experiments/') or (ROOT / word).is_file(), word
    return None


@pytest.mark.parametrize('block', params(block for block in SHELL if not block.mark))
def test_commands_are_understood(block):
    """The program is there, and understands these words as far as that can be said without running
    it.
    """
    for program, *words in commands_of(block.code):
        if program in ('python', '.venv/bin/python'):
            check_python(words)
        elif program == 'make':
            assert re.search(rf'^{words[0]}:', text_of(ROOT / 'Makefile'), re.M), words
        elif program.startswith('scripts/'):
            assert os.access(ROOT / program, os.X_OK), program
        else:
            assert [program, *words[:1]] == ['pip', 'install'], program


def test_notebooks_are_the_walks():
    """Made by `python -m tests.notebooks`."""
    for page in notebooks.pages():
        assert text_of(page.with_suffix('.ipynb')) == notebooks.notebook(page), page


def test_numbers_are_those_of_the_rows(tmp_path):
    """The tables are what their command makes of the committed rows; so is the picture."""
    for page in PAGES:
        copy = tmp_path / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(page.read_bytes())
    (tmp_path / 'results').symlink_to(ROOT / 'results')
    assert documents.update(tmp_path, documents.documents(tmp_path)) == []
    points = functools.partial(re.findall, '<use [^>]*stroke: #ffffff[^>]*>')
    path = documents.draw(tmp_path)
    made, kept = (
        text_of(root / 'docs' / 'figures' / f'{path.stem}.svg') for root in (tmp_path, ROOT)
    )
    # other versions of matplotlib draw other bits
    assert len(points(made)) == len(points(kept)) > 20
    named = {name for page in PAGES for name in re.findall('<!-- table: (.*) -->', text_of(page))}
    assert named == set(documents.TABLES)
    readme = text_of(ROOT / 'README.md')
    assert len(readme.splitlines()) <= 100
    assert 'not run yet' not in readme


def test_text_between_two_tables_stays_where_the_first_has_no_end(tmp_path):
    page = tmp_path / 'README.md'
    ends = '<!-- end of table -->'
    page.write_text(f'<!-- table: forgotten -->\n\nkept\n\n<!-- table: schedules -->\n{ends}\n')
    (tmp_path / 'results').symlink_to(ROOT / 'results')
    assert documents.update(tmp_path, [page]) == [page]
    assert '\nkept\n' in text_of(page)


def test_the_version_stands_in_three_places():
    newest = re.search(r'^## \[(.+)\] - (\S+)$', text_of(ROOT / 'CHANGELOG.md'), re.M)
    assert newest[1] == scroll.__version__
    assert '\nversion: {}\ndate-released: {}\n'.format(*newest.groups()) in text_of(
        ROOT / 'CITATION.cff'
    )
