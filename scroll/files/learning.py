"""Learn from files of features, and predict, for `python -m scroll learn, add, predict`.

Files are read in blocks (`scroll.files.features`). Statistics, and so f_T, are the same bits
whatever the order of samples and files, their kind and the size of the blocks. So is a buffer with
`strategy='hash'`; other strategies choose among the samples of a block.
"""

import codecs
import csv
import sys
from collections.abc import Iterator
from contextlib import nullcontext

from scroll.files.features import FeatureFile, open_files, read_blocks
from scroll.files.images import ImageFile
from scroll.ground.archive import atomic_write, write_errors
from scroll.ground.errors import InputError, prefixed
from scroll.ground.progress import track
from scroll.learners.learner import Scroll
from scroll.sums.parts import warn_of_repeated


def learn(
    learner: Scroll,
    paths,
    columns: dict | None = None,
    split: str | None = None,
    source: str = 'what was learned',
) -> tuple[int, int]:
    """Teach a learner files (`open_for`), each a part (`scroll.sums.parts`); return the number of
    samples learned, and of all samples in the files.

    Args:
        learner: learns them.
        paths: files of features, or of images where it has a backbone.
        columns: other names of columns, as of `open_files`.
        split: the samples to learn, as of `read_blocks`: by default those to train.
        source: file of the learner, for errors.

    InputError: a file cannot be read or learned; the learner may then have learned a part."""
    files = open_for(learner, paths, columns, source=source)
    learned = 0
    parts = {}
    total = sum(file.rows for file in files)
    with track('Learning', total=total) as progress:
        for file in files:
            for count in learn_file(learner, file, split):
                learned += count
                progress.update(count)
            if learned:
                parts = learner.end_part()
    if not learned:
        raise InputError(f'{files[0].path}: no samples: split and where let none through')
    warn_of_repeated(parts)
    return learned, total


def open_for(
    learner: Scroll,
    paths,
    columns: dict | None,
    names: tuple | None = None,
    source: str = 'what was learned',
    need: tuple = ('X', 'y'),
) -> list[FeatureFile]:
    """Open files for a learner: Parquet files of images where it has a backbone, else as
    `open_files`. names: None: those of the learner."""
    names = names or getattr(learner, 'feature_names_in_', None)
    classes = getattr(learner, 'classes_', ())
    reference = (classes, f'in {source}') if len(classes) else None
    kind = FeatureFile if learner.embedder is None else ImageFile
    return open_files(paths, columns, need, names, reference, kind)


def learn_file(learner: Scroll, file: FeatureFile, split: str | None) -> Iterator[int]:
    """Teach a learner one file, block after block; yield the number of samples of each."""
    for _, block in read_blocks([file], split):
        with prefixed(file.path):
            learner.partial_fit(file.named(block.X), block.y)
        yield len(block.X)


def predict(
    learner: Scroll,
    paths,
    out,
    columns: dict | None = None,
    split: str | None = None,
    scores: bool = False,
) -> tuple[int | None, int]:
    """Write labels of samples to `out`, as CSV, whole or not at all ('-': to standard output, as
    they come): of files with splits those to test. Images of different sizes come in no order.

    Columns: `id`, of the file, or how many samples come before it; `label`, the prediction; `y`,
    where the file has it; with `scores` the logit of each class, so that reading it gives the same
    float64. Return the number of samples predicted right, or None where there is no y, and of all
    samples."""
    files = open_for(learner, paths, columns, need=('X',))
    right = 0
    total = 0
    labelled = 'y' in files[0].has
    score_names = [f'score {label}' for label in learner.classes_] if scores else []
    writing = nullcontext(sys.stdout.buffer) if out == '-' else atomic_write(out)
    progress = track('Predicting', total=sum(file.rows for file in files))
    with write_errors(out), writing as target, progress:
        sys.stdout.flush()
        text = codecs.getwriter('utf-8')(target, 'backslashreplace')
        lines = csv.writer(text, lineterminator='\n')
        lines.writerow(['id', 'label', *(['y'] if labelled else []), *score_names])
        for file, block in read_blocks(files, split, usual='test'):
            with prefixed(file.path):
                X = file.named(block.X)
                labels = learner.predict(X)
                values = [block.id.tolist(), labels.tolist()]
                if labelled:
                    values.append(block.y.tolist())
                    right += int((labels == block.y).sum())
                if scores:
                    values += learner.decision_function(X).T.tolist()
            lines.writerows(zip(*values))
            total += len(labels)
            progress.update(len(labels))
        if not total:
            raise InputError(f'{files[0].path}: no samples: split and where let none through')
        target.flush()
    return right if labelled else None, total
