"""Plug-ins are found by reading sources; a broken file hurts only who chooses it."""

import sys

import pytest

from core import plugins
from core.plugins import PluginFolder, keyword_flags
from tests.conftest import refused, written

FILES = {
    '__init__.py': 'from core.plugins import PluginFolder\nPLUGINS = PluginFolder("plugged", '
    '"thing")\n'
    'register_thing = PLUGINS.register\n',
    'fine.py': (
        'class Fine:\n    NAME = "fine_one"\n\nclass _Base:\n    NAME = '
        '"hidden"\n\nclass Nameless:\n    pass\n'
    ),
    'typed.py': 'class Typed:\n    NAME: str = "typed"\n\nclass Chained:\n'
    '    TITLE = NAME = "chained"\n',
    'decorated.py': 'from plugged import register_thing\n\n@register_thing("made")\ndef '
    'make(width=3):\n    return width\n\n'
    '@register_thing("Built_Up")\nclass Built:\n    pass\n',
    'garbled.py': 'def (:\n',
    'needy.py': 'import no_such_dependency\n\nclass Needy:\n    NAME = "needy"\n',
    'failing.py': 'undefined_name\n\nclass Failing:\n    NAME = "failing"\n',
    '_private.py': 'class Private:\n    NAME = "private"\n',
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A package `plugged` with good and bad files."""
    monkeypatch.setattr(plugins, 'ROOT', tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield written(tmp_path / 'plugged', FILES)
    for name in [name for name in sys.modules if name.split('.')[0] == 'plugged']:
        del sys.modules[name]


@pytest.fixture
def things(folder) -> PluginFolder:
    import plugged

    return plugged.PLUGINS


def test_names_are_found_without_importing_any_file(things):
    assert things.names() == [
        'built-up',
        'chained',
        'failing',
        'fine-one',
        'garbled',
        'made',
        'needy',
        'typed',
    ]
    assert not [name for name in sys.modules if name.startswith('plugged.')]


def test_only_the_chosen_file_is_imported_and_its_name_may_be_spelled_in_other_ways(things):
    assert things.get('made')() == 3
    assert 'plugged.decorated' in sys.modules
    assert 'plugged.fine' not in sys.modules
    assert all(
        things.get(spelling).__name__ == 'Fine'
        for spelling in ('fine-one', 'FINE_ONE', ' Fine-One ')
    )


def test_a_file_that_cannot_be_imported_hurts_only_who_chooses_it(things):
    for name, reason in (
        ('garbled', 'syntax'),
        ('needy', 'no_such_dependency'),
        ('failing', 'undefined_name'),
    ):
        with refused(f'--thing {name}', f'plugged/{name}.py', reason):
            things.get(name)


def test_an_unknown_name_gets_the_nearest_or_the_whole_list(things):
    with refused('--thing fine-onne', 'did you mean fine-one?'):
        things.get('fine-onne')
    with refused('--thing zzz', 'known: built-up, chained, failing'):
        things.check('zzz')


def test_a_name_that_two_files_declare_is_refused_when_it_is_chosen(things, folder):
    written(folder, {'second.py': 'class Second:\n    NAME = "fine-one"\n'})
    assert things.get('typed').__name__ == 'Typed'
    with refused('fine-one', 'fine.py', 'second.py'):
        things.get('fine-one')


def test_flags_of_a_signature():
    def build(num_classes, width: int = 3, *args, depth, args_=1, **kwargs):
        """Only width, depth and args_ are flags."""

    assert list(keyword_flags(build)) == ['width', 'depth', 'args_']
