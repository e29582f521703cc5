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


def anytime_curves(path: Path, curves: list, title: str) -> Path:
    """Draw many schedules' accuracy on the classes seen against the share of the stream seen, a thin line each, into a PNG file.

    Args:
        curves: lists of (samples seen, accuracy in percent), the last at the end of the stream.
    """
    figure, axes = _new_figure()
    for points in curves:
        samples, accuracies = zip(*points)
        axes.plot([100 * n / samples[-1] for n in samples], accuracies, marker='.', markersize=3, linewidth=0.6, color='C0',
                  alpha=max(0.1, len(curves) ** -0.5))
    axes.set(xlabel='stream seen (%)', ylabel='accuracy on the classes seen (%)', title=title, xlim=(0, 102), ylim=(0, 100))
    axes.grid(alpha=0.3)
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


def panels(path: Path, curves: dict, xlabel: str, ylabel: str, title: str) -> Path:
    """Draw lines with a band of one deviation about them, panels side by side with one scale, into a file.

    Args:
        curves: title of a panel -> {name of a line: (x, mean, deviation), lists of one length}.
    """
    figure, axes = _new_figure(len(curves))
    for ax, (name, lines) in zip(axes, curves.items()):
        for line, (x, mean, deviation) in lines.items():
            ax.plot(x, mean, label=line)
            ax.fill_between(x, *([m + sign * d for m, d in zip(mean, deviation)] for sign in (-1, 1)), alpha=0.25)
        ax.set(xlabel=xlabel, title=name)
        ax.grid(alpha=0.3)
    axes[0].set(ylabel=ylabel, ylim=(0, None))
    axes[-1].legend()
    figure.suptitle(title)
    return _save(figure, path)


def _new_figure(count: int = 1) -> tuple:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    figure = Figure(figsize=(6 if count == 1 else 3.2 * count, 3.6), layout='constrained')
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, count, sharey=True)


def _save(figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path
