"""Accuracy of a model on the tasks a stream has brought so far."""
from contextlib import contextmanager

import torch


@contextmanager
def eval_mode(net):
    """Eval mode within the block; afterwards each module is in the mode it was in."""
    modes = {} if net is None else {module: module.training for module in net.modules()}
    if net is not None:
        net.eval()
    yield
    for module, training in modes.items():
        module.training = training


def serve(loader, model) -> None:
    """Let a loader of ours give batches as the method wants them; loaders of foreign make give what they give."""
    if hasattr(loader, 'serve'):
        loader.serve(model.RAW_STREAM, model.RAW_NOT_AUG, model.device)


@torch.no_grad()
def evaluate(model, dataset, last: bool = False, loaders=None):
    """Accuracies in percent for each task so far; random state and training mode are left as they were.

    Class-il: the prediction is the best of all classes seen so far; task-il: the best of the classes of the sample's task.

    Args:
        last: only the newest task.
        loaders: (task, test loader) pairs; default: those of `dataset.test_loaders`.

    Returns:
        (class-il, task-il): two lists of floats.
    """
    if loaders is None:
        loaders = list(enumerate(dataset.test_loaders))[-1 if last else 0:]
    seen = torch.as_tensor(dataset.seen_classes() if dataset.c_task >= 0 else range(dataset.N_CLASSES)).to(model.device)
    class_il, task_il = [], []
    with eval_mode(model.net):
        for task, loader in loaders:
            serve(loader, model)
            own = torch.as_tensor(dataset.task_classes(task)).to(model.device)
            hits = torch.zeros(2, dtype=torch.int64, device=model.device)
            for inputs, labels in loader:
                logits, labels = model(inputs.to(model.device)), labels.to(model.device)
                for row, allowed in enumerate((seen, own)):
                    hits[row] += (allowed[logits[:, allowed].argmax(1)] == labels).sum()
            for accuracies, hit in zip((class_il, task_il), hits.tolist()):
                accuracies.append(100 * hit / max(1, len(loader.dataset)))
    return class_il, task_il
