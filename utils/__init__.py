"""What files written for Mammoth import from `utils`, under Mammoth's names, and nothing else."""
from core.arguments import binary_to_boolean_type, custom_str_underscore, none_or_float  # noqa: F401


def create_if_not_exists(path) -> None:
    """Make a folder, and those above it."""
    import os
    os.makedirs(path, exist_ok=True)


def smart_joint(*paths) -> str:
    """Join the parts of a path, or of a URL if the first is one."""
    import os
    first, *rest = map(str, paths)
    if '://' in first:
        return '/'.join([first.rstrip('/'), *(part.strip('/') for part in rest)])
    return os.path.join(first, *rest)


def in_notebook() -> bool:
    """Whether this runs in a Jupyter notebook."""
    import sys
    return 'ipykernel' in sys.modules


def to_parsable_obj(value):
    """The same as what JSON knows: dicts with text keys, lists, numbers, texts, True, False and None."""
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    if isinstance(value, dict):
        return {str(k): to_parsable_obj(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [to_parsable_obj(v) for v in value]
    if hasattr(value, 'tolist'):                            # arrays, tensors and their scalars
        return to_parsable_obj(value.tolist())
    return to_parsable_obj(vars(value)) if type(value).__name__ == 'Namespace' else str(value)


def field_with_aliases(aliases, **options):
    """A dataclass field that may be given by other names, too; they are in its metadata."""
    import dataclasses
    return dataclasses.field(metadata=options.pop('metadata', {}) | dict(aliases=list(aliases)), **options)
