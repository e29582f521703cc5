"""SCROLL's files: what is written after the last task, what a run begins with (flags: `scroll_flags`)."""
from dataclasses import replace

from scroll import archive, edits
from scroll.errors import InputError, naming
from scroll.exemplars import ExemplarBuffer
from scroll.export import USUAL, export
from scroll.learner import Scroll
from scroll.tables import check_names


def check_writable(args) -> None:
    """InputError, before anything is learned, for what cannot be written, or would replace another file."""
    others = [*(getattr(args, 'features', None) or ()), *(getattr(args, 'test_features', None) or ())]
    others += [args.loadcheck] if args.loadcheck else []
    for flag in ('save_statistics', 'save_state', 'export'):
        if path := getattr(args, flag):
            archive.check_target(path, f'--{flag}', folder=flag == 'export')
            archive.check_apart(path, others, f'--{flag}')
            others.append(path)


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


def load(model, path) -> None:
    """Give a model's learner what a file of statistics, or of statistics and buffer, holds. InputError: it is
    neither, or damaged, or of another backbone or other features, or has classes that the data set lacks."""
    learner, n_classes, state = model.learner, len(model.to_stream), edits.read(path)
    if state.params is None and learner.buffer_size:
        state = replace(state, buffer=ExemplarBuffer(learner.buffer_size, learner.strategy))
    classes, dim = state.statistics.classes, state.statistics.dim
    with naming(path):
        state.check_backbone(learner.psi())
        check_names(model.feature_names, state.names, 'this data set')
        if getattr(model.dataset, 'num_inputs', dim) != dim:
            raise InputError(f'it has {dim} features: this data set has {model.dataset.num_inputs}')
    if not len(classes) or classes.dtype.kind != 'i' or classes[0] < 0 or classes[-1] >= n_classes:
        shown = ', '.join(map(str, classes[:3].tolist())) + ', ...' * (len(classes) > 3)
        raise InputError(f'{path}: its classes are {shown or "none"}: this data set has 0..{n_classes - 1}')
    learner.set_state(state)

