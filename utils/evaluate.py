"""Accuracy of a model on the tasks a stream has brought so far."""

import inspect
import itertools
from contextlib import contextmanager

import torch
import torch.nn.functional as F

from scroll.ground.progress import track
from utils.batch_norm import networks_of


@contextmanager
def eval_mode(net):
    """Eval mode of all networks in `net` within the block; afterwards each module is in its mode
    again.
    """
    networks = networks_of(net)
    modes = {}
    for network in networks:
        modes |= {module: module.training for module in network.modules()}
    try:
        for network in networks:
            network.eval()
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def serve(loader, model) -> None:
    """Let a loader of ours give batches as the method wants them; third-party loaders give what
    they give.
    """
    if hasattr(loader, 'serve'):
        loader.serve(model.RAW_STREAM, model.RAW_NOT_AUG, model.device, model.is_foreign)


@torch.no_grad()
def evaluate(
    model, dataset, last: bool = False, loaders=None, return_loss: bool = False, seen=None
):
    """(class-il, task-il): two lists of accuracies in percent, of each task so far.

    Class-il: the prediction is the best of all classes seen so far; task-il: of a task's own
    samples (`--validation_mode complete` has others), the best of its classes. A task-aware method
    (`is_task_aware`) has no class-il accuracy, unless all tasks have all classes (domain-il); it is
    0. Random state and training mode are left as they were.

    last: only the newest task. loaders: (task, test loader) pairs; default: `dataset.test_loaders`.
    return_loss: as a third item, the mean cross-entropy over the classes seen, of all samples.
    seen: labels that class-il chooses among; default: of the tasks so far, before the first task
    all."""
    if loaders is None:
        loaders = list(enumerate(dataset.test_loaders))[-1 if last else 0 :]
    if seen is None:
        seen = dataset.seen_classes() if dataset.c_task >= 0 else range(dataset.N_CLASSES)
    choices = torch.as_tensor(seen).to(model.device)
    class_il = []
    task_il = []
    losses = torch.zeros((), device=model.device)
    count = 0
    task_aware = is_task_aware(model)
    has_class_il = not task_aware or dataset.SETTING == 'domain-il'
    total = sum(len(loader.dataset) for _, loader in loaders)
    quiet = model.args.non_verbose
    with eval_mode(model.net), track('Evaluating', total=total, quiet=quiet) as progress:
        for task, loader in loaders:
            of_task = torch.as_tensor(dataset.task_classes(task)).to(model.device)
            right = torch.zeros(2, dtype=torch.int64, device=model.device)
            size = own = 0
            for batch in _batches(loader, model):
                inputs, labels = (part.to(model.device) for part in batch[:2])
                logits = model(inputs, task) if task_aware else model(inputs)
                for row, allowed in enumerate((choices, of_task)):
                    right[row] += _right(logits, labels, allowed)
                if return_loss:
                    losses += _loss(logits, labels, choices)
                size += len(labels)
                own += torch.isin(labels, of_task).sum()
                progress.update(len(labels))
            count += size
            among_seen, in_task = right.tolist()
            class_il.append(100 * among_seen / max(1, size) if has_class_il else 0.0)
            task_il.append(100 * in_task / max(1, int(own)))
    mean_loss = (losses.item() / max(1, count),) if return_loss else ()
    return class_il, task_il, *mean_loss


@torch.no_grad()
def hits(model, inputs, labels, classes: list) -> int:
    """Samples that the method labels right, chosen among these classes; inputs as `forward` wants
    them.
    """
    allowed = torch.as_tensor(classes).to(model.device)
    with eval_mode(model.net):
        logits = model(inputs.to(model.device))
    return _right(logits, labels.to(model.device), allowed).item()


def _right(logits, labels, allowed) -> torch.Tensor:
    """Number of samples whose largest logit among the allowed classes is their label's."""
    return (allowed[logits[:, allowed].argmax(1)] == labels).sum()


@torch.no_grad()
def accuracy_on_classes(model, dataset, classes: list) -> float:
    """Accuracy in percent over the test samples so far that are of these classes, chosen among
    these.
    """
    right = 0
    size = 0
    for loader in dataset.test_loaders:
        for inputs, labels, *_ in _batches(loader, model):
            right += hits(model, inputs, labels, classes)
            size += int(torch.isin(labels, torch.as_tensor(classes)).sum())
    return 100 * right / max(1, size)


def _batches(loader, model):
    """The loader's batches, as the method wants them; with `--debug_mode` only the first."""
    serve(loader, model)
    return itertools.islice(loader, model.get_debug_iters() if model.args.debug_mode else None)


def is_task_aware(model) -> bool:
    """Return whether `forward` needs the task: the method is for neither class-il nor streams
    without tasks.
    """
    if not {'class-il', 'general-continual'}.isdisjoint(model.COMPATIBILITY):
        return False
    return len(inspect.signature(model.forward).parameters) > 1


def _loss(logits, labels, seen) -> torch.Tensor:
    """Sum of cross-entropies over the seen classes; one that a method rules out costs as the least
    float.
    """
    least = torch.finfo(logits.dtype).min
    among_seen = torch.full_like(logits, least)
    among_seen[:, seen] = logits[:, seen].clamp(min=least)
    return F.cross_entropy(among_seen, labels, reduction='sum')
