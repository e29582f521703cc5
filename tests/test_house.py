"""Form of the house: packages, and rooms of `scroll/`, import from lower ones alone, no modules
import each other in a circle, and docstrings begin with a verb or a noun.
"""

import ast
import graphlib
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# from the ground up; main.py and its like stand on all
PACKAGES = [
    'exact_torch',
    'scroll',
    'core',
    'utils',
    'backbone',
    'datasets',
    'models',
    'bench',
    'scripts',
]
ROOMS = [
    'ground',
    'sums',
    'streams',
    'heads',
    'embedding',
    'adaptation',
    'learners',
    'files',
    'exports',
    'libraries',
    'commands',
]
EXCEPTION = 'utils.main', 'bench.cli.command'  # Mammoth's name for the command that trains


def module_name(path: Path) -> str:
    return '.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix('.__init__')


MODULES = {
    module_name(path): path
    for pattern in ('*.py', *(f'{package}/**/*.py' for package in PACKAGES))
    for path in ROOT.glob(pattern)
}


def imports(path: Path) -> set[str]:
    """Return the modules of the house that a file imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f'{node.module}.{alias.name}'
                names.add(full if full in MODULES else node.module)
    return names & MODULES.keys()


GRAPH = {name: imports(path) - {name} for name, path in MODULES.items()}


def floor(names: list[str], floors: list[str]) -> int:
    return floors.index(names[0]) if set(names[:1]) & set(floors) else len(floors)


def test_no_arrow_leads_up():
    up = []
    for module, needs in GRAPH.items():
        for need in needs:
            here = module.split('.')
            there = need.split('.')
            if here[0] == there[0] == 'scroll' and need != 'scroll':  # which has the version
                rises = floor(there[1:], ROOMS) > floor(here[1:], ROOMS)
            else:
                rises = floor(there, PACKAGES) > floor(here, PACKAGES)
            if rises and (module, need) != EXCEPTION:
                up.append(f'{module} -> {need}')
    assert up == []


def test_no_modules_import_each_other_in_a_circle():
    graphlib.TopologicalSorter(GRAPH).prepare()  # a CycleError names the circle


def test_docstrings_begin_with_a_verb_or_a_noun():
    clause = re.compile(r'(What|Of|As|Those|These|When|Where|Which|With|At|By)\b')
    found = []
    for path in [*MODULES.values(), *ROOT.glob('tests/**/*.py')]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                text = ast.get_docstring(node) or ''
                if clause.match(text):
                    found.append(f'{path.relative_to(ROOT)}: {text[:60]}')
    assert found == []


def test_the_type_checker_finds_no_more_errors_in_the_library_than_before():
    """Lower the number whenever there are fewer."""
    command = [sys.executable, '-m', 'basedpyright', '--outputjson', '--pythonpath', sys.executable]
    found = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=False).stdout)
    assert found['summary']['errorCount'] <= 25, [
        (error['file'], error['message']) for error in found['generalDiagnostics']
    ]
