"""The look of every picture: one colour and marker a method, one size of type, PNG and SVG. Colours
keep apart for the colour-blind: those of Okabe and Ito (2008) and of Paul Tol's muted scheme.
"""

from contextlib import contextmanager
from pathlib import Path

from core.plugins import normalise
from scroll.ground.archive import atomic_write, write_errors

METHODS = {  # name -> name in pictures, colour, marker
    'scroll': ('SCROLL', '#0072B2', 'o'),
    'gdumb': ('GDumb', '#E69F00', 's'),
    'er-ace': ('ER-ACE', '#009E73', '^'),
    'er-aml': ('ER-AML', '#56B4E9', 'v'),
    'ssil': ('SS-IL', '#CC79A7', 'D'),
    'mir': ('MIR', '#D55E00', 'P'),
    'ens': ('ENS', '#000000', 'X'),
    'er': ('ER', '#882255', '<'),
    'der': ('DER', '#999933', '>'),
    'derpp': ('DER++', '#332288', 'p'),
    'bic': ('BiC', '#117733', 'h'),
    'icarl': ('iCaRL', '#AA4499', '*'),
    'gem': ('GEM', '#CC6677', 'd'),
    'agem': ('A-GEM', '#DDCC77', '8'),
    'lwf': ('LwF', '#88CCEE', 'H'),
    'ewc-on': ('EWC', '#44AA99', '|'),
    'sgd': ('SGD', '#999999', 'x'),
    'joint': ('joint', '#555555', '+'),
}
SEQUENTIAL = 'Blues'  # of counts and shares: white is none


def of(method: str) -> tuple:
    """(colour, marker) of a method; a third-party one has always the same of ours."""
    method = normalise(method)
    if method in METHODS:
        return METHODS[method][1:]
    return nth(sum(method.encode()))


def nth(number: int) -> tuple:
    """(colour, marker) of a curve by its number, where all are of one method."""
    return list(METHODS.values())[number % len(METHODS)][1:]


def name(method: str) -> str:
    """Name of a method in pictures and tables."""
    return METHODS.get(normalise(method), [method])[0]


@contextmanager
def picture(path: Path, size: tuple, **options):
    """Give (figure, axes) of one look, written at the end of the block as its suffix says, and as
    SVG. Equal drawings make equal files. size: inches. options: of `subplots`."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(fname=Path(__file__).with_suffix('.mplstyle')):
        figure = Figure(figsize=size, layout='constrained')
        FigureCanvasAgg(figure)
        yield figure, figure.subplots(**options)
        for kind in dict.fromkeys((path.suffix[1:], 'svg')):
            metadata = {'Date': None} if kind == 'svg' else None
            with write_errors(path), atomic_write(path.with_suffix(f'.{kind}')) as file:
                figure.savefig(file, dpi=150, format=kind, metadata=metadata)
