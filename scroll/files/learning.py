"""Learn from files of features, and predict: what `python -m scroll learn, add, predict` do.

Files are read in blocks (`scroll.files.features`). Statistics, and so f_T, are the same bits
whatever the order of samples and files, their kind and the size of the blocks. So is a buffer with
`strategy='hash'`; other strategies choose among the samples of a block.
"""

import csv
import io
import sys
from contextlib import nullcontext

from scroll.files.features import BLOCK, FeatureFile, open_files, read_blocks
from scroll.ground.archive import atomic_write, write_errors
from scroll.ground.errors import InputError, prefixed
from scroll.ground.labels import check_kind
from scroll.ground.progress import Progress
from scroll.learners.learner import Scroll
from scroll.sums.parts import warn_of_repeated


def learn(
    learner: Scroll,
    paths,
    columns: dict | None = None,
    split: str | None = None,
    size: int = BLOCK,
    source: str = 'what was learned',
) -> tuple:
    """Let a learner learn from files (`open_for`), each a part (`scroll.sums.parts`): of those with
    splits what is to train, unless `split` says otherwise. source: of what the learner knows
    already, for errors. Returns (samples learned, samples in the files). InputError: a file cannot
    be read or learned from; the learner may then have learned a part."""
    names = getattr(learner, 'feature_names_in_', None)
    files, learned = open_for(learner, paths, columns, names, source), 0
    with Progress('Learning', sum(file.rows for file in files)) as progress:
        for file in files:
            learned += learn_file(learner, file, split, size, progress.update)
            if learned:
                parts = learner.end_part()
    if not learned:
        raise InputError(
            f'{files[0].path}: there are no samples of the split that is to be learned'
        )
    warn_of_repeated(parts)
    return learned, sum(file.rows for file in files)


def open_for(
    learner: Scroll,
    paths,
    columns: dict | None = None,
    names: tuple | None = None,
    source: str = 'what was learned',
) -> list:
    """What a learner learns from: Parquet files of images where it has a backbone, else
    `open_files`.
    """
    kind, known = FeatureFile, None
    if learner.embedder is not None:
        from scroll.files.images import ImageFile as kind
    if hasattr(learner, 'statistics_') and len(learner.classes_):
        known = learner.classes_, f'in {source}'
    return open_files(paths, columns, ('X', 'y'), names, known, kind)


def learn_file(
    learner: Scroll, file, split: str | None = None, size: int = BLOCK, progress=None
) -> int:
    """`learn`, of a `FeatureFile`; returns how many samples were learned, which may be none.
    progress: called with the number of each block's."""
    learned = 0
    for _, block in read_blocks([file], split, size):
        with prefixed(file.path):
            learner.partial_fit(file.named(block.X), block.y)
        learned += len(block.X)
        if progress:
            progress(len(block.X))
    return learned


def predict(
    learner: Scroll,
    paths,
    out,
    columns: dict | None = None,
    split: str | None = None,
    size: int = BLOCK,
    scores: bool = False,
) -> tuple:
    """Write labels of samples to `out`, as CSV, whole or not at all ('-': to standard output, as
    they come): of files with splits those to test.

    Columns: `id`, of the file, or how many samples come before it; `label`, what is predicted; `y`,
    where the file has it; with `scores` the logit of each class, so that reading it gives the same
    float64. Returns (samples predicted right, or None where there is no y; samples)."""
    learned = getattr(learner, 'feature_names_in_', None)
    files, right, total = open_files(paths, columns, names=learned), 0, 0
    known = 'y' in files[0].has
    names = [
        'id',
        'label',
        *['y'] * known,
        *[f'score {label}' for label in learner.classes_] * scores,
    ]
    writing = nullcontext(sys.stdout.buffer) if out == '-' else atomic_write(out)
    with (
        write_errors(out),
        writing as target,
        Progress('Predicting', sum(f.rows for f in files)) as progress,
    ):
        sys.stdout.flush()
        target.write(_csv([names]))
        for file, block in read_blocks(files, split, size, usual='test'):
            with prefixed(file.path):
                if known:
                    check_kind(block.y, learner.classes_)
                X = file.named(block.X)
                labels = learner.predict(X).tolist()
                logits = learner.decision_function(X).T.tolist() if scores else []
            true = [block.y.tolist()] if known else []
            right += sum(a == b for column in true for a, b in zip(labels, column))
            target.write(_csv(zip(block.id.tolist(), labels, *true, *logits)))
            total += len(labels)
            progress.update(len(labels))
        if not total:
            raise InputError(
                f'{files[0].path}: there are no samples of the split that is to be predicted'
            )
        target.flush()
    return right if known else None, total


def _csv(rows) -> bytes:
    """Lines of CSV; Python's floats are written so that they are read as the same."""
    text = io.StringIO(newline='')
    csv.writer(text, lineterminator='\n').writerows(rows)
    return text.getvalue().encode('utf-8', 'backslashreplace')
