"""Embedders by name, as command lines give them."""

import importlib
import re
from functools import cache

from scroll.embedding.side_by_side import SideBySide
from scroll.ground.arguments import shown
from scroll.ground.errors import InputError


def with_options(text: str) -> tuple[str, str, dict]:
    """('LIBRARY', 'NAME', options) of 'LIBRARY:NAME,key=value,...'; a value is a whole number,
    True, False or text, and `file` text."""
    library, _, rest = text.partition(':')
    name, *options = rest.split(',')
    values = {}
    words = {'True': True, 'False': False}
    for option in options:
        key, _, value = option.partition('=')
        whole = value.isdecimal() and key != 'file'
        values[key] = int(value) if whole else words.get(value, value)
    return library, name, values


@cache
def embedder_of(text: str):
    """The `Embedder` that a text names, one for the process; None of ''; InputError if it names
    none.

    `timm:NAME`: by `Embedder.from_timm`. `MODULE:NAME`: the result of this function. Options
    follow: `timm:vit_small_patch16_224,file=v.safetensors,dtype=bfloat16`. `A+B` is both side by
    side."""
    parts = re.split(r'\+(?=[\w.]+:)', text)
    if len(parts) > 1:
        return SideBySide(*map(embedder_of, parts))
    module, name, options = with_options(text)
    if not text:
        return None
    try:
        if module == 'timm':
            from scroll.embedding.embedder import Embedder

            return Embedder.from_timm(name, **options)
        made = getattr(importlib.import_module(module), name)(**options)
        if not hasattr(made, 'digest'):
            raise TypeError(f'it made {shown(made)}')
        return made
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise InputError(
            f'--embedder {text}: expected timm:NAME, or MODULE:NAME of what '
            f'makes an Embedder ({" ".join(str(error).split())[:300]})'
        ) from error
