"""Five sites that never see each other's data end in the model of all; then, what their files give away.

    python -m examples.five_sites FOLDER            # a new folder: what each site sends is written there

The sites hold two digits each of scikit-learn's handwritten ones. Each sends one file of sums; the centre
merges them. Then one of them learns one sample more and sends its file again: the difference is that sample.
"""
import argparse
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


def sites() -> tuple:
    """({site: (X, y)} to learn, (X, y) to test): each site has seen two of the ten digits."""
    X, y = load_digits(return_X_y=True)
    learn, test = np.arange(1500), np.arange(1500, len(y))
    return {name: (X[learn][y[learn] // 2 == i], y[learn][y[learn] // 2 == i])
            for i, name in enumerate(SITES)}, (X[test], y[test])


def send(home: Path, name: str, X, y, to: str) -> Path:
    """A site's file of sums: what it would send."""
    np.savez(home / f'{name}-data.npz', X=X, y=y)               # never leaves the site
    state = home / f'{to}.npz'
    if scroll(['learn', '--from', str(home / f'{name}-data.npz'), '--head', 'lda', '-o', str(state)]):
        raise InputError(f'{name}: its samples cannot be learned')
    return state


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument('folder', type=Path, help='a folder that is not there yet')
    home = parser.parse_args().folder
    if home.exists():
        raise InputError(f'{home}: is there already; give the name of a new folder')
    home.mkdir(parents=True)
    parts, (X, y) = sites()
    sent = [send(home, name, *data, to=name) for name, data in parts.items()]
    print('sent: ' + ', '.join(f'{path.name} {path.stat().st_size / 1000:.0f} kB' for path in sent))
    scroll(['merge', *map(str, reversed(sent)), '-o', str(home / 'all.npz')])
    merged = Scroll.load(home / 'all.npz')
    central = Scroll(head='lda', buffer_size=0)
    central.fit(*(np.concatenate(part) for part in zip(*parts.values())))
    same = merged.digest() == central.digest() and \
        merged.predictor().digest() == central.predictor().digest()
    print(f'the model of five sites {"is" if same else "is not"} that of one that had all data: '
          f'{100 * merged.score(X, y):.1f} % right')

    more, labels = (np.concatenate(pair) for pair in zip(parts['north'], (X[:1], y[:1])))
    more = send(home, 'north', more, labels, to='again')
    new = State.read(more).statistics.subtract(State.read(sent[0]).statistics)
    seen = new.sums[0, :-1] / GRID
    print(f'north has sent two files: between them it learned a {new.classes[0]}, and the difference '
          f'{"is" if (new.sums[0, :-1] == quantise(X[:1])[0]).all() else "is not"} that very image:')
    for row in (seen.reshape(8, 8) / seen.max() * 4.99).astype(int):
        print('  ' + ''.join(' .:*#'[shade] * 2 for shade in row).rstrip())
    return int(not same)


if __name__ == '__main__':
    sys.exit(run_command(main))
