"""README.md and docs/: code runs and prints what they say, commands exist, numbers are those of the
rows, words are plain.

A fenced block has a language. `python` blocks of a page run one after the other; of `bash` blocks
each command is checked against its parser. A comment on the line before a block: `<!-- run -->`,
`<!-- run: slow -->`: the commands are run, with the files of the `python` blocks above; `<!-- file:
PATH -->`: it is a file of the project
(tests/models/test_third_party_methods.py runs it as one); `<!-- output -->`: what the block above
prints; `<!-- not run: why -->`: left out.
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
from collections import namedtuple
from pathlib import Path

import pytest

import scroll
from bench.cli.parsing import parse_args
from bench.paper import documents
from scroll.heads import registry
from tests.conftest import ROOT

PAGES = [*documents.documents(ROOT), ROOT / 'CONTRIBUTING.md', ROOT / 'RELEASING.md']
_FENCE = re.compile(
    r'^(?:<!-- (?P<mark>[^\n]*?) -->\n\n)?```(?P<language>\w*)\n(?P<code>.*?)^```$', re.M | re.S
)
_PLAIN = (
    'README.md',
    'CONTRIBUTING.md',
    *('docs/**/*.md', '*.py', 'scripts/*.sh'),
    *(
        f'{folder}/**/*.py'
        for folder in (
            'backbone',
            'bench',
            'core',
            'datasets',
            'experiments',
            'models',
            'scripts',
            'scroll',
            'utils',
        )
    ),
)
_WORDS = re.compile(r'\b(anew|beside|bears|is told|so many)\b', re.I)
# output: None where the page has none
Block = namedtuple('Block', 'page line language code mark output')


def text_of(path: Path) -> str:
    return path.read_text(encoding='utf-8')


def blocks_of(path: Path) -> list:
    text, found = text_of(path), []
    for match in _FENCE.finditer(text):
        if match['mark'] == 'output':
            found[-1] = found[-1]._replace(output=match['code'])
        else:
            line = text[: match.start('language')].count('\n') + 1
            found.append(
                Block(
                    str(path.relative_to(ROOT)),
                    line,
                    match['language'],
                    match['code'],
                    match['mark'] or '',
                    None,
                )
            )
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
SHELL = [block for block in BLOCKS if block.language == 'bash']


def params(blocks):
    return [
        pytest.param(
            block,
            id=f'{block.page}:{block.line}',
            marks=[pytest.mark.slow] * ('slow' in block.mark),
        )
        for block in blocks
    ]


def test_words_are_plain():
    for path in itertools.chain.from_iterable(ROOT.glob(pattern) for pattern in _PLAIN):
        assert not _WORDS.findall(text_of(path)), path


def test_blocks_links_and_inline_commands_lead_somewhere():
    assert len(BLOCKS) > 20
    assert {block.language for block in BLOCKS} <= {'python', 'bash', 'text'}
    targets = re.findall(r'^([\w-]+):', text_of(ROOT / 'Makefile'), re.M)
    folders = 'scripts|experiments|models|datasets|bench|scroll|backbone|tests'
    for page in PAGES:
        text = text_of(page)
        assert text.count('```') == 2 * len(_FENCE.findall(text)), page
        for link in re.findall(r'\]\(([^)#]*)(?:#[^)]*)?\)', text):
            assert link.startswith('https://') or not link or (page.parent / link).exists(), (
                page,
                link,
            )
        for path in re.findall(
            rf'`(?:python )?((?:{folders})/[\w/.*-]+)(?=[`\s])', _FENCE.sub('', text)
        ):
            assert glob.glob(str(ROOT / path)), (page, path)
        for target in re.findall(r'`(?:[A-Z_]+=\S+ )?make (\S+?)`', _FENCE.sub('', text)):
            assert target in targets, (page, target)
        assert not re.search(r'install\s+["\']?scroll-cl', text), (
            f'{page}: this distribution is on no index'
        )


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
    for block in blocks_of(ROOT / page):
        if block.language == 'python' and not block.mark.startswith('not run'):
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
    name = (
        re.search(
            r"(?:^from |_root.run\('|import_module\(')(bench[\w.]*)", text_of(ROOT / script), re.M
        )
        if script != 'scroll'
        else None
    )
    said, given, sys.argv = io.StringIO(), sys.argv, [script, *words, '--help']
    try:
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            importlib.import_module(name[1] if name else 'scroll.__main__').main()
    finally:
        sys.argv = given
    return set(re.findall(r'(?<![\w-])--?\w+', said.getvalue()))


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
        if Path(script).stem in ('certify', 'orders', 'schedule', 'tune'):
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
    assert len(text_of(ROOT / 'README.md').splitlines()) <= 90


def test_the_version_stands_in_three_places():
    newest = re.search(r'^## \[(.+)\] - (\S+)$', text_of(ROOT / 'CHANGELOG.md'), re.M)
    assert newest[1] == scroll.__version__
    assert '\nversion: {}\ndate-released: {}\n'.format(*newest.groups()) in text_of(
        ROOT / 'CITATION.cff'
    )
