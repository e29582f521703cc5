"""SCROLL's files: what is written after the last task, what a run begins with (flags: `scroll_flags`)."""
from dataclasses import replace

from scroll import archive, edits
from scroll.errors import InputError, naming
from scroll.exemplars import ExemplarBuffer
from scroll.export import USUAL, export
from scroll.learner import Scroll


def check_writable(args) -> None:
    """InputError, before anything is learned, for a file or folder that cannot be written."""
    for flag in ('save_statistics', 'save_state', 'export'):
        if path := getattr(args, flag):
            archive.check_target(path, f'--{flag}', folder=flag == 'export')


def save(learner: Scroll, args, images=None) -> None:
    """Write the files that the flags ask for, each whole or not at all; InputError if one cannot be. images:
    `datasets.utils.readers.Images`, for the names of classes in an export."""
    if args.save_statistics:
        learner.statistics_.save(args.save_statistics, learner.psi())
    if args.save_state:
        learner.save(args.save_state)
    if args.export:
        known = {} if images is None else dict(image_shape=images.train.shape[1:],
                                               names=[images.class_names[y] for y in learner.classes_])
        export(learner, args.export, args.export_formats or USUAL, **known)


def load(learner: Scroll, path, n_classes: int) -> None:
    """Give the learner what a file of statistics, or of statistics and buffer, holds. InputError: it is
    neither, or damaged, or of another backbone, or has classes that the data set lacks."""
    state = edits.read(path)
    if state.params is None and learner.buffer_size:
        state = replace(state, buffer=ExemplarBuffer(learner.buffer_size, learner.strategy))
    with naming(path):
        state.check_backbone(learner.psi())
    classes = state.statistics.classes
    if not len(classes) or classes.dtype.kind != 'i' or classes[0] < 0 or classes[-1] >= n_classes:
        shown = ', '.join(map(str, classes[:3].tolist())) + ', ...' * (len(classes) > 3)
        raise InputError(f'{path}: its classes are {shown or "none"}: this data set has 0..{n_classes - 1}')
    learner.set_state(state)

