"""Five sites that never see each other's data end in the model of all; then, what their files give away.

    python -m examples.five_sites FOLDER            # a new folder: what each site sends is written there

The sites hold two digits each of scikit-learn's handwritten ones. Each sends one file of sums; the centre
merges them. Then one of them learns one sample more and sends its file again: the difference is that sample.
"""
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from core.commands import run_command
from scroll import InputError, Scroll
from scroll.__main__ import main as scroll
from scroll.grid import GRID, quantise
from scroll.state import State

SITES = ('north', 'east', 'south', 'west', 'centre')


def send(home: Path, name: str, X, y) -> Path:
    """A site's file of sums."""
    np.savez(home / f'{name}-data.npz', X=X, y=y)               # never leaves the site
    state = home / f'{name}.npz'
    scroll(['learn', '--from', str(home / f'{name}-data.npz'), '--head', 'lda', '-o', str(state)])
    return state


def main() -> int:
    home = Path(sys.argv[1] if sys.argv[1:] else 'sent')
    if home.exists():
        raise InputError(f'{home}: is there already; give the name of a new folder')
    home.mkdir(parents=True)
    X, y = load_digits(return_X_y=True)
    X, y, test, answers = X[:1500], y[:1500], X[1500:], y[1500:]
    sent = [send(home, name, X[y // 2 == i], y[y // 2 == i]) for i, name in enumerate(SITES)]
    print('sent: ' + ', '.join(f'{path.name} {path.stat().st_size / 1000:.0f} kB' for path in sent))
    scroll(['merge', *map(str, reversed(sent)), '-o', str(home / 'all.npz')])
    merged, central = Scroll.load(home / 'all.npz'), Scroll(head='lda', buffer_size=0).fit(X, y)
    same = merged.digest() == central.digest() and \
        merged.predictor().digest() == central.predictor().digest()
    print(f'the model of five sites {"is" if same else "is not"} that of one that had all data: '
          f'{100 * merged.score(test, answers):.1f} % right')

    mine = y // 2 == 0
    more = send(home, 'again', np.concatenate([X[mine], test[:1]]), np.append(y[mine], answers[0]))
    new = State.read(more).statistics.subtract(State.read(sent[0]).statistics)
    seen = new.sums[0, :-1] / GRID
    print(f'north has sent two files: between them it learned a {new.classes[0]}, and the difference '
          f'{"is" if (new.sums[0, :-1] == quantise(test[:1])[0]).all() else "is not"} that very image:')
    for row in (seen.reshape(8, 8) / seen.max() * 4.99).astype(int):
        print('  ' + ''.join(' .:*#'[shade] * 2 for shade in row).rstrip())
    return int(not same)


if __name__ == '__main__':
    sys.exit(run_command(main))
