"""Walks of docs/ as notebooks: the same text, code and output. The tests run the code of the pages.

python -m tests.notebooks     # writes docs/walk-*.ipynb
"""

import json
import re
from pathlib import Path

from tests.conftest import ROOT

FENCE = re.compile(
    r'^(?:<!-- (?P<mark>[^\n]*?) -->\n\n)?```(?P<language>\w*)\n(?P<code>.*?)^```$', re.M | re.S
)


def pages() -> list:
    return sorted((ROOT / 'docs').glob('walk-*.md'))


def notebook(page: Path) -> str:
    """The notebook of a page, as JSON. Blocks that are not run stay text."""
    text = page.read_text(encoding='utf-8')
    cells = []
    end = 0
    for match in FENCE.finditer(text):
        mark, language, code = match.groups('')
        if mark == 'output':
            lines = code.splitlines(keepends=True)
            cells[-1]['outputs'] = [{'name': 'stdout', 'output_type': 'stream', 'text': lines}]
        elif (language == 'python' and not mark) or mark.startswith('run'):
            cells.append(_cell('markdown', text[end : match.start()]))
            cells.append(_cell('code', '%%bash\n' * (language == 'bash') + code))
        else:
            continue  # with the text that follows
        end = match.end()
    cells.append(_cell('markdown', text[end:]))
    cells.insert(1, _cell('code', '%cd ..'))  # the examples begin in the root of the repository
    cells = [cell for cell in cells if cell['source']]
    for number, cell in enumerate(cells):
        cell['id'] = f'cell-{number}'
    about = {'language_info': {'name': 'python'}}
    content = {'cells': cells, 'metadata': about, 'nbformat': 4, 'nbformat_minor': 5}
    return json.dumps(content, indent=1, ensure_ascii=False) + '\n'


def _cell(kind: str, text: str) -> dict:
    cell = {'cell_type': kind, 'metadata': {}, 'source': text.strip().splitlines(keepends=True)}
    return cell | ({'execution_count': None, 'outputs': []} if kind == 'code' else {})


if __name__ == '__main__':
    for path in pages():
        path.with_suffix('.ipynb').write_text(notebook(path), encoding='utf-8')
