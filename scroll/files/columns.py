"""Column names and types of a file of features."""
from scroll.errors import InputError

NAMES = dict(X=('X', 'features'), y=('y', 'labels'), id=('id',), split=('split',))     # the latter: our own
MAX_WIDTH = 1 << 16                 # features of a sample, and bytes of a label
BLOCK_BYTES = 1 << 27               # of the samples that are in memory at once, as float64
_WORDS = dict(f='numbers', i='numbers', u='numbers', U='text', S='bytes', O='Python objects')


def columns_of(text: str) -> dict:
    """'X=embedding,y=label' as a dict; InputError if it is something else."""
    pairs = [item.partition('=') for item in text.split(',')]
    columns = {name: column for name, _, column in pairs}
    if not all(columns.values()) or not columns.keys() <= NAMES.keys() or len(columns) < len(pairs):
        raise InputError(f'columns {text!r}: expected X=<name>, joined by commas, also of '
                         f'{", ".join(list(NAMES)[1:])}, each once')
    return columns


def found_in(known: list, columns: dict) -> dict:
    """name -> its column among the known ones, of X, y, id and split."""
    wanted = {name: [columns[name]] if name in columns else own for name, own in NAMES.items()}
    found = {name: next((column for column in own if column in known), None) for name, own in wanted.items()}
    return {name: column for name, column in found.items() if column is not None}


def check_shape(name: str, shape: tuple, kind: str, rows: int) -> None:
    """InputError unless X is (N, d), d at least 1, of numbers, and another column (N,), as long as X."""
    if name == 'X' and (len(shape) != 2 or not 0 < shape[1] < MAX_WIDTH or kind not in 'fiu'):
        raise InputError(f'X has shape {shape} and holds {_WORDS.get(kind, "something else")}: expected '
                         f'numbers (N, d), d from 1 to {MAX_WIDTH - 1}')
    if name != 'X' and shape != (rows,):
        raise InputError(f'{name} has shape {shape}: expected ({rows},), one a sample of X')
