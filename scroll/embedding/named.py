"""Embedders by name, as command lines give them."""

import importlib
from functools import cache

from scroll.ground.errors import InputError


def with_options(text: str) -> tuple:
    """('LIBRARY', 'NAME', options) of 'LIBRARY:NAME,key=value,...'; a value is a whole number,
    True, False or text, and `file` text."""
    library, _, rest = text.partition(':')
    name, *options = rest.split(',')
    given = dict(option.partition('=')[::2] for option in options)
    values = {'True': True, 'False': False}
    return (
        library,
        name,
        {
            key: int(value) if value.isdecimal() and key != 'file' else values.get(value, value)
            for key, value in given.items()
        },
    )


@cache
def embedder_of(text: str):
    """The `Embedder` that a text names, one for the process; None of ''; InputError if it names
    none.

    `timm:NAME` and `transformers:NAME`: by `Embedder.from_timm` and `from_transformers`.
    `MODULE:NAME`: what
    this function returns. Options follow:
    `timm:vit_small_patch16_224,file=v.safetensors,dtype=bfloat16`."""
    module, name, given = with_options(text)
    try:
        if module in ('timm', 'transformers'):
            from scroll.embedding.embedder import Embedder

            return getattr(Embedder, f'from_{module}')(name, **given)
        return getattr(importlib.import_module(module), name)(**given) if text else None
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise InputError(
            f'--embedder {text}: expected timm:NAME, transformers:NAME or MODULE:NAME of what '
            f'makes an Embedder ({" ".join(str(error).split())[:300]})'
        ) from error
