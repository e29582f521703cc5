"""README.md and docs/: their code runs and prints what they say, their commands exist, their numbers are those of the rows.

A fenced block has a language. `python` blocks of a page run one after the other. Of `bash` blocks each command is looked at:
flags that its `--help` or the parser of main.py knows, files that are there. A comment on the line before a block says more:
`<!-- run -->`, `<!-- run: slow -->`: the commands are run, where the `python` blocks above have left their files; `<!-- output -->`: what the block above prints;
`<!-- not run: why -->`: not even looked at.
"""
import contextlib
import functools
import glob
import importlib
import io
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.cli.parsing import parse_args
from bench.paper import documents
from tests.conftest import ROOT, refused

PAGES = documents.documents(ROOT)
_FENCE = re.compile(r'^(?:<!-- (?P<mark>[^\n]*?) -->\n\n)?```(?P<language>\w*)\n(?P<code>.*?)^```$', re.M | re.S)
_MARKS = re.compile(r'(run|run: slow|output|not run: .+|table: \w+|end of table)?')
_SHELL_WORDS = {'for', 'set', 'test', 'do', 'done', 'export'}


class Block(NamedTuple):
    page: str
    line: int
    language: str
    code: str
    mark: str
    output: str         # what it prints, where the page says so

    def __str__(self):
        return f'{self.page}:{self.line}'


def blocks_of(path: Path) -> list:
    text, found = path.read_text(encoding='utf-8'), []
    for match in _FENCE.finditer(text):
        mark = match['mark'] or ''
        if mark == 'output':
            found[-1] = found[-1]._replace(output=match['code'])
        else:
            found.append(Block(str(path.relative_to(ROOT)), text[:match.start('language')].count('\n') + 1,
                               match['language'], match['code'], mark if _MARKS.fullmatch(mark) else '', None))
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
SHELL = [block for block in BLOCKS if block.language == 'bash']


def left_out(block: Block) -> None:
    if block.mark.startswith('not run'):
        pytest.skip(f'{block}: {block.mark}')


def test_each_block_says_what_it_is():
    assert len(BLOCKS) > 20 and {block.language for block in BLOCKS} <= {'python', 'bash', 'text'}
    for page in PAGES:
        text = page.read_text(encoding='utf-8')
        assert text.count('```') == 2 * len(_FENCE.findall(text)), page


@pytest.mark.parametrize('page', [page for page in PAGES if any(b.language == 'python' for b in blocks_of(page))],
                         ids=lambda page: str(page.relative_to(ROOT)))
def test_python_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ('models', 'datasets', 'backbone'):               # what a page registers goes again
        plugins = __import__(folder).PLUGINS
        monkeypatch.setattr(plugins, 'registered', dict(plugins.registered))
    names = {'__name__': 'page'}
    for block in blocks_of(page):
        if block.language == 'python' and not block.mark.startswith('not run'):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile('\n' * block.line + block.code, str(page), 'exec'), names)     # noqa: S102
            assert block.output is None or printed.getvalue() == block.output, str(block)


@pytest.fixture
def checkout(tmp_path):
    """A folder that looks like the repository, for commands that write."""
    for path in ROOT.iterdir():
        if path.name not in ('data', '.git', '.venv'):
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / 'bin').mkdir()
    python = tmp_path / 'bin' / 'python'
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize('block', [pytest.param(block, id=str(block), marks=[pytest.mark.slow] if 'slow' in block.mark else [])
                                   for block in SHELL if block.mark.startswith('run')])
def test_commands_print_what_the_page_says(block, checkout):
    above = [other.code for other in BLOCKS if other.page == block.page and other.line < block.line and other.language == 'python']
    if above:
        subprocess.run([sys.executable, '-c', '\n'.join(above)], cwd=checkout, check=True, stdout=subprocess.PIPE, timeout=600)
    environment = dict(os.environ, PATH=f"{checkout / 'bin'}:{os.environ['PATH']}", OMP_NUM_THREADS='1')
    done = subprocess.run(['bash', '-euc', block.code], cwd=checkout, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert block.output is None or done.stdout == block.output


def commands_of(code: str):
    """Words of each command of a shell block, without comments, variables set before it, and redirections."""
    for line in code.replace('\\\n', ' ').splitlines():
        words = shlex.split(re.split(r' [|>&]| && ', line)[0], comments=True)
        while words and re.match(r'[A-Z_]+=', words[0]):
            words.pop(0)
        if words:
            yield words


@functools.cache
def flags_of(script: str, *words: str) -> set:
    """The flags that a command's `--help` names, asked for in this process, since torch takes seconds to import."""
    if script == 'scroll':
        from scroll.__main__ import main
    else:
        module = re.search(r'^from (bench[\w.]*) import main', (ROOT / script).read_text(encoding='utf-8'), re.M)[1]
        main = importlib.import_module(module).main
    said, given = io.StringIO(), sys.argv
    sys.argv = [script, *words, '--help']
    try:
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            main()
    finally:
        sys.argv = given
    return set(re.findall(r'(?<![\w-])--?\w+', said.getvalue()))


@functools.cache
def flags_of_runs() -> set:
    parser = parse_args(['--model', 'scroll', '--dataset', 'seq-digits'], return_parser_only=True)
    return {flag for action in parser._actions for flag in action.option_strings}


def check_flags(words: list, known: set) -> None:
    for word in itertools.takewhile(lambda word: word != '--', words):
        assert not word.startswith('-') or word.split('=')[0] in known, f'{word}: {sorted(known)}'


def check_command(words: list) -> None:
    """The program is there, and understands these words as far as that can be said without running it."""
    program, *rest = words
    if program in ('python', '.venv/bin/python', 'torchrun') and rest[:1] != ['-m']:
        rest = rest[next(i for i, word in enumerate(rest) if word.endswith('.py')):]
        script, *rest = rest
        assert (ROOT / script).is_file(), script
        if script == 'main.py':
            if '--help' not in rest:
                parse_args(rest)
        else:
            subcommand = rest[:2] if rest[:1] == ['quantise'] else []
            passed_on = flags_of_runs() if Path(script).stem in ('beside', 'certify', 'orders', 'schedule', 'tune') else set()
            check_flags(rest, flags_of(script, *subcommand) | passed_on)
            for word in rest:
                if word.startswith('experiments/'):
                    assert (ROOT / word).is_file(), word
    elif program in ('python', '.venv/bin/python') and rest[1].startswith('examples.'):
        assert (ROOT / rest[1].replace('.', '/')).with_suffix('.py').is_file(), rest
    elif program in ('python', '.venv/bin/python'):
        assert rest[1] == 'scroll', rest
        check_flags(rest[3:], flags_of('scroll', rest[2]))
    elif program == 'make':
        assert re.search(rf'^{rest[0]}:', (ROOT / 'Makefile').read_text(encoding='utf-8'), re.M), rest
    elif program == 'bash' or program.startswith('scripts/'):
        script = ROOT / (rest[0] if program == 'bash' else program)
        assert script.is_file() and (program == 'bash' or os.access(script, os.X_OK)), script
    else:
        assert program == 'pip' and rest[0] == 'install' or program in _SHELL_WORDS, words


@pytest.mark.parametrize('block', [pytest.param(block, id=str(block)) for block in SHELL])
def test_commands_are_understood(block):
    left_out(block)
    for words in commands_of(block.code):
        if '...' not in words:
            check_command(words)


def test_inline_commands_are_there():
    """`scripts/...`, `make ...` and paths within a sentence."""
    targets = re.findall(r'^([\w-]+):', (ROOT / 'Makefile').read_text(encoding='utf-8'), re.M)
    for page in PAGES:
        text = _FENCE.sub('', page.read_text(encoding='utf-8'))
        for path in re.findall(r'`(?:python )?((?:scripts|experiments|models|datasets|bench|scroll|backbone|tests)/[\w/.*-]+)(?=[`\s])', text):
            assert glob.glob(str(ROOT / path)), (page, path)
        for target in re.findall(r'`(?:[A-Z_]+=\S+ )?make (\S+?)`', text):
            assert target in targets, (page, target)


def test_nobody_is_sent_to_a_package_that_is_not_on_the_index():
    """Anybody could take the name of the distribution there: what is installed is a checkout."""
    paths = [path for pattern in ('*.md', '*.toml', '*.txt', 'Makefile', '*.py', '*.yml') for path in ROOT.rglob(pattern)
             if path.relative_to(ROOT).parts[0] in ('docs', 'scroll', 'backbone', 'bench', 'core', 'datasets', 'models', 'utils', 'scripts',
                                                    'examples', 'experiments', path.name)]
    assert len(paths) > 200
    assert not [path for path in paths if re.search(r'install\s+["\']?scroll-cl|scroll-cl\[', path.read_text(encoding='utf-8'))]


def test_links_lead_somewhere():
    for page in PAGES:
        for link in re.findall(r'\]\(([^)#]*)(?:#[^)]*)?\)', page.read_text(encoding='utf-8')):
            assert link.startswith('https://') or not link or (page.parent / link).exists(), (page, link)


def test_numbers_are_those_of_the_rows(tmp_path):
    """The tables are what their command makes of the committed rows; so is the picture."""
    for page in PAGES:
        copy = tmp_path / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(page.read_bytes())
    (tmp_path / 'results').symlink_to(ROOT / 'results')
    assert documents.update(tmp_path, documents.documents(tmp_path)) == []
    points = functools.partial(re.findall, '<use [^>]*stroke: #ffffff[^>]*>')
    for path in documents.draw(tmp_path):
        made, kept = ((root / 'docs' / 'figures' / f'{path.stem}.svg').read_text(encoding='utf-8') for root in (tmp_path, ROOT))
        assert len(points(made)) == len(points(kept)) > 20              # other versions of matplotlib draw other bits
    assert {name for page in PAGES for name in re.findall('<!-- table: (.*) -->', page.read_text(encoding='utf-8'))} == \
        set(documents.TABLES)


def certificate(tmp_path, model: str, accuracies: list, dataset: str = 'seq-digits') -> Path:
    rows = [dict(spec=f'split:{i + 2}', schedule_digest=str(i), final_accuracy=a, outcome=str(a)) for i, a in enumerate(accuracies)]
    path = tmp_path / f'{model}-{dataset}.json'
    path.write_text(json.dumps(dict(inputs=dict(model=model, dataset=dataset), schedules=rows)), encoding='utf-8')
    return path


def test_certificates_become_a_table(tmp_path):
    """What is newer replaces what there was of its method; the steadiest is first."""
    folder = tmp_path / 'results' / 'clouds'
    documents.take_in([certificate(tmp_path, 'er', [1, 2])], folder)
    documents.take_in([certificate(tmp_path, 'er', [20, 60]), certificate(tmp_path, 'scroll', [98, 98])], folder)
    readme = tmp_path / 'README.md'
    readme.write_text('<!-- table: schedules -->\n\n<!-- end of table -->\n', encoding='utf-8')
    assert documents.update(tmp_path, [readme]) == [readme] and documents.update(tmp_path, [readme]) == []
    assert readme.read_text(encoding='utf-8').splitlines()[4:6] == ['| SCROLL | 2 | 98.00 ± 0.00 | 98.00 | 0.00 | 1 |',
                                                                    '| ER | 2 | 40.00 ± 28.28 | 20.00 | 40.00 | 2 |']
    readme.write_text('<!-- table: none -->\n\n<!-- end of table -->\n', encoding='utf-8')
    with refused('README.md', 'none', 'schedules'):
        documents.update(tmp_path, [readme])


def test_what_is_no_certificate_is_refused(tmp_path):
    (tmp_path / 'list.json').write_text('[]', encoding='utf-8')
    for paths, word in (([tmp_path / 'none.json'], 'none.json'), ([tmp_path / 'list.json'], 'list.json'),
                        ([certificate(tmp_path, 'er', [1]), certificate(tmp_path, 'er', [1], 'seq-mnist')], 'seq-mnist')):
        with refused(word):
            documents.take_in(paths, tmp_path / 'clouds')
    assert not (tmp_path / 'clouds').exists()


def test_the_readme_is_a_screen():
    assert len((ROOT / 'README.md').read_text(encoding='utf-8').splitlines()) <= 90
