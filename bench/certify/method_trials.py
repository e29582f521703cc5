"""Any method under a schedule, by runs of main.py: its predictor and its curve."""
import contextlib
import hashlib
import io
import platform

import numpy as np
import torch

from bench.certify.store import single
from bench.cli import parsing as cli
from bench.run.building import initialize
from bench.run.training import train
from scroll.certificates.prefix_sums import class_segments
from scroll.certificates.robustness import anytime_area
from scroll.embedding.machine import kind_of_machine
from scroll.errors import InputError
from scroll.grid import little_endian
from utils.evaluate import eval_mode, is_task_aware, serve


def about_machine() -> dict:
    """What bits may depend on besides data and arguments."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return dict(processor=kind_of_machine(), gpu=gpu, torch=torch.__version__,
                numpy=np.__version__, python=platform.python_version(), threads=torch.get_num_threads())


class MethodTrials:
    """Any method, trained from scratch on each schedule.

    Attributes:
        labels: (N,), of the test samples in the order of predictions. device: where the network runs."""

    def __init__(self, words, model, dataset, specs):
        if is_task_aware(model):
            raise InputError(f'--model {model.NAME} is task-aware (it needs the task of a sample): '
                             'it has no predictor to compare')
        for spec in specs:
            if not spec.startswith('split:'):  # may be refused: better now than after hours
                cli.parse_args([*words, '--schedule', spec])
        self.words, self.device = words, model.device
        self.labels = np.sort(dataset.test_labels, kind='stable')

    def asks(self, number: int) -> dict:
        """Nothing that depends on the number of the schedule."""
        return {}

    def run(self, number: int, spec: str, schedule) -> tuple:
        """(row, weights float32 (P,), predictions (N,)) after training on the whole stream."""
        return run_method([*self.words, '--schedule', spec])

    def claims(self, rows: list) -> tuple:
        """(name -> digests, name -> whether each is claimed to equal the others)."""
        digests = {'net': [row['net_digest'] for row in rows],
                   'weights and predictions': [row['outcome'] for row in rows]}
        return digests, {name: [True] * len(rows) for name in digests}

    def lines(self, rows: list) -> tuple:
        """Nothing that holds anywhere; the digest of the network, on this kind of machine."""
        return {}, dict(net=single(row['net_digest'] for row in rows))


def run_method(words: list) -> tuple:
    """One run of main.py with these words: (row, weights float32 (P,), predictions (N,))."""
    curve = {}
    with contextlib.redirect_stdout(io.StringIO()):
        model, dataset, args = initialize(cli.parse_args(words))
        after = model.meta_end_eval

        def end_eval(dataset, accuracies):
            sizes = [len(loader.dataset) for loader in dataset.test_loaders]
            seen = int(dataset.schedule.tasks[dataset.c_task + 1])
            curve[seen] = round(float(np.average(accuracies[0], weights=sizes)), 4)
            after(dataset, accuracies)
        model.meta_end_eval = end_eval
        measured = train(model, dataset, args)
    labels, predictions = test_predictions(model, dataset)
    points = [list(point) for point in curve.items()]
    row = dict(whole_classes=class_segments(dataset.schedule, dataset.train_labels) is not None,
               net_digest=net_digest(model),
               final_accuracy=round(100 * float((predictions == labels).mean()), 4),
               average_incremental_accuracy=measured['average_incremental_accuracy'],
               anytime_area=round(anytime_area(*np.array(points).T), 4), curve=points)
    real = [tensor.float().cpu().numpy().ravel() for _, tensor in sorted(model.net.state_dict().items())
            if tensor.is_floating_point()]
    return row, np.concatenate(real), predictions


@torch.no_grad()
def test_predictions(model, dataset) -> tuple:
    """Labels and predictions int64 (N,) of all test samples, by class and, within, as in the files."""
    seen, pairs = torch.as_tensor(dataset.seen_classes()).to(model.device), []
    with eval_mode(model.net):
        for loader in dataset.test_loaders:
            serve(loader, model)
            for inputs, labels, *_ in loader:
                pairs.append((labels.cpu(), seen[model(inputs.to(model.device))[:, seen].argmax(1)].cpu()))
    labels, predictions = (torch.cat(part).numpy() for part in zip(*pairs))
    order = np.argsort(labels, kind='stable')
    return labels[order], predictions[order]


def net_digest(model) -> str:
    """SHA-256 of names and values of the network."""
    sha = hashlib.sha256()
    for name, tensor in sorted(model.net.state_dict().items()):
        sha.update(f'net.{name}'.encode())
        sha.update(little_endian(tensor.cpu().numpy()))
    return sha.hexdigest()
