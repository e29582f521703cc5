"""From a folder of photographs to a classifier; then a class is added, and one is taken out without trace.

    python -m examples.photographs FOLDER           # photographs of a class lie in FOLDER/<class>/

Every fifth photograph of a class tests.
"""
import argparse
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

from backbone.weights import embedder
from core.commands import run_command
from datasets.utils.image_files import class_folders, image_files, read_images
from scroll import InputError, Scroll


def learn(pictures: dict, names) -> Scroll:
    """A learner of these classes, one after the other. pictures: uint8 images (N, H, W, 3) by name."""
    learner = Scroll(embedder('compact'), head='lda')
    for name in names:
        learner.partial_fit(pictures[name], [name] * len(pictures[name]))
    return learner


def show(what: str, learner: Scroll, tests: dict, seconds: float) -> None:
    """A line: accuracy on all photographs that test the classes known, seconds, digest."""
    names = learner.classes_.tolist()
    right = [learner.predict(tests[name]) == name for name in names]
    print(f'{what:<24} {len(names):>3} classes, {100 * np.concatenate(right).mean():.1f} % right, '
          f'{seconds:5.2f} s, digest {learner.digest()[:16]}')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument('folder', type=Path, help='photographs of a class lie in FOLDER/<class>/')
    home = parser.parse_args().folder
    files = {name: image_files(home / name)[0] for name in class_folders(home)}
    if len(files) < 3 or min(map(len, files.values())) < 2:
        raise InputError(f'{home}: expected a folder for each of three classes or more, with two photographs '
                         'or more in each')
    tests = {name: read_images(paths[::5], 84, home) for name, paths in files.items()}
    pictures = {name: read_images([path for i, path in enumerate(paths) if i % 5], 84, home)
                for name, paths in files.items()}
    gone, *others, late = files

    start = perf_counter()
    learner = learn(pictures, [gone, *others])
    show('learned', learner, tests, perf_counter() - start)

    start = perf_counter()
    learner.partial_fit(pictures[late], [late] * len(pictures[late]))
    show(f'with {late}', learner, tests, perf_counter() - start)

    start = perf_counter()
    learner.remove_class(gone, pictures[gone])
    show(f'without {gone}', learner, tests, perf_counter() - start)

    start = perf_counter()
    never = learn(pictures, [late, *reversed(others)])
    show(f'{gone} never seen', never, tests, perf_counter() - start)
    same = learner.digest() == never.digest() and learner.predictor().digest() == never.predictor().digest()
    print('the same to the last bit' if same else 'not the same')
    return int(not same)


if __name__ == '__main__':
    sys.exit(run_command(main))
