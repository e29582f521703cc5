"""Pictures of runs and of schedules."""
from pathlib import Path


def accuracy_curve(path: Path, curves: dict, title: str, seen: str = 'tasks seen') -> Path:
    """Draw one line a curve, mean accuracy on the classes seen after each task, into a PNG file.

    Args:
        curves: name -> list of (task, accuracy in percent). seen: what is counted in place of tasks.
    """
    figure, axes = _new_figure()
    for name, points in curves.items():
        axes.plot(*zip(*points), marker='o', markersize=4, label=name)
    axes.set(xlabel=seen, ylabel='accuracy on the classes seen (%)', title=title, ylim=(0, 100))
    axes.grid(alpha=0.3)
    axes.legend()
    return _save(figure, path)


def schedule_picture(path: Path, counts, title: str) -> Path:
    """Draw when samples of which class arrive, class against time, into a PNG file.

    Args:
        counts: int (K, bins), samples of each class in each part of the stream.
    """
    figure, axes = _new_figure()
    picture = axes.imshow(counts, aspect='auto', origin='lower', interpolation='nearest', cmap='Blues',
                          extent=(0, 100, -0.5, len(counts) - 0.5))
    axes.set(xlabel='stream seen (%)', ylabel='class', title=title)
    figure.colorbar(picture, label='samples')
    return _save(figure, path)


def _new_figure() -> tuple:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    figure = Figure(figsize=(6, 3.6), layout='constrained')
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def _save(figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path
