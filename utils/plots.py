"""The picture of a run: accuracy as the stream goes by."""
from pathlib import Path


def accuracy_curve(path: Path, curves: dict, title: str) -> Path:
    """Draw one line a curve, mean accuracy on the classes seen after each task, into a PNG file.

    Args:
        curves: name -> list of (task, accuracy in percent).
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    figure = Figure(figsize=(6, 3.6), layout='constrained')
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for name, points in curves.items():
        axes.plot(*zip(*points), marker='o', markersize=4, label=name)
    axes.set(xlabel='tasks seen', ylabel='accuracy on the classes seen (%)', title=title, ylim=(0, 100))
    axes.grid(alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path
