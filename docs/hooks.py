"""For MkDocs: pages and pictures of results/ are part of the site, where links of docs/ expect
them.
"""

import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent


def on_files(files, config):
    """Add results/ to what is built."""
    for path in sorted((ROOT / 'results').rglob('*')):
        if path.suffix in ('.md', '.png', '.svg', '.csv', '.json'):
            name = str(path.relative_to(ROOT))
            files.append(File(name, str(ROOT), config['site_dir'], config['use_directory_urls']))
    return files


def on_page_markdown(markdown, page, config, files):
    """A link out of docs/ is one within the site."""
    return (
        re.sub(r'\]\(\.\./results/', '](results/', markdown)
        if '/' not in page.file.src_uri
        else markdown
    )
