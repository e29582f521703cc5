"""SCROLL's files: written after the last task, or loaded before a run (flags: `scroll_flags`)."""

import copy
from dataclasses import replace

from scroll.exports.tensors import check_export, export
from scroll.files import edits
from scroll.ground import archive
from scroll.ground.errors import InputError, prefixed
from scroll.ground.tables import check_names
from scroll.learners.learner import Scroll
from scroll.sums.exemplars import ExemplarBuffer


def check_writable(args, embedder) -> None:
    """InputError, before anything is learned, for a file that cannot be written or is another's."""
    if args.export:
        with prefixed('--export'):
            _, formats, _ = check_export(args.export, args.export_formats, embedder)
        f_star = embedder and args.buffer_size and args.adaptation != 'none'
        half = args.precision == 'bfloat16' and not args.inference_only
        if f_star and half and formats != ['safetensors']:
            raise InputError('--export: graphs of f* need --precision float32, not bfloat16')
    others = [args.loadcheck] if args.loadcheck else []
    for flag in ('features', 'test_features'):
        others += getattr(args, flag, None) or ()
    for flag in ('save_statistics', 'save_state', 'export'):
        path = getattr(args, flag)
        if not path:
            continue
        if flag != 'export':  # which `check_export` has seen
            archive.check_target(path, f'--{flag}')
        archive.check_apart(path, others, f'--{flag}')
        others.append(path)


def save(learner: Scroll, args, images=None) -> None:
    """Write the files that flags ask for, each whole or not at all; InputError if one cannot be.

    images: `datasets.utils.readers.Images`, for the names of classes in an export, and labels other
    than 0..K-1."""
    labels = getattr(images, 'labels', None) or ()
    names = {
        y: label
        for y, label in enumerate(labels)
        if (y != label or isinstance(label, bool)) and y in learner.classes_
    }
    named = copy.copy(learner).rename(names) if names else learner
    if args.save_statistics:
        named.statistics_.save(args.save_statistics, learner.psi())
    if args.save_state:
        named.save(args.save_state)
    if args.export:
        about = {}
        if images is not None:
            about['image_shape'] = images.train.shape[1:]
            about['names'] = [images.class_names[y] for y in learner.classes_]
        if names and learner.adapted_:  # labels are sorted: columns stay
            f_star = replace(learner.adapted_, classes=named.classes_)
            named.set_state(replace(named.state_for_files(), adapted=f_star))
        export(named, args.export, args.export_formats, **about)


def load(model, path) -> None:
    """Set a model's learner to the content of a file of statistics, or of statistics and buffer.

    InputError: it is neither, or damaged, or of another backbone or other features, or has classes
    that the data set lacks."""
    learner = model.learner
    state = edits.read(path)
    images = getattr(model.dataset, 'images', None)
    if state.params is None and learner.buffer_size:
        state = replace(state, buffer=ExemplarBuffer(learner.buffer_size, learner.strategy))
    labels = getattr(images, 'labels', None) or range(len(model.to_stream))
    classes = state.classes.tolist()
    dim = state.statistics.dim
    with prefixed(path):
        state.check_backbone(learner.psi())
        check_names(model.feature_names, state.names, 'this data set')
        if getattr(model.dataset, 'num_inputs', dim) != dim:
            raise InputError(f'it has {dim} features: this data set has {model.dataset.num_inputs}')
        if not classes or not set(classes) <= set(labels):
            shown = ', '.join(map(str, classes[:3])) or 'none'
            if len(classes) > 3:
                shown += ', ...'
            raise InputError(
                f'its classes are {shown}: this data set has {labels[0]}..{labels[-1]}'
            )
    names = {
        label: y
        for y, label in enumerate(labels)
        if (y != label or state.boolean) and label in classes
    }  # True is not 1
    learner.set_state(state.renamed(names) if names else state)
