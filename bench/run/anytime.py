"""Anytime accuracy: how well a method does after n samples, on the classes that have come by then
(`--eval_every`).

After Koh et al. 2022, "Online continual learning on class incremental blurry task configuration with anytime
inference": a(n) is the accuracy after n samples over the test samples of the classes seen so far, chosen
among these; the area under its curve, A_AUC, is its mean over equally spaced points.
"""
import json

import torch

from scroll.errors import InputError
from utils import metrics
from utils.evaluate import accuracy_on_classes, is_task_aware


class Anytime:
    """Evaluates at the end of each batch that brings the stream to, or past, a multiple of `every` samples.

    Attributes:
        curve: list of [samples seen, accuracy in percent].
        seen: labels that have come, sorted.
        samples: of the stream so far."""

    def __init__(self, model, dataset, every: int = None):
        if every and is_task_aware(model):
            raise InputError(f'--eval_every: {model.NAME} needs the task of each sample, so it has no '
                             'anytime accuracy')
        self.model, self.dataset, self.every = model, dataset, every
        self.curve, self.seen, self.samples = [], [], 0

    def state_dict(self) -> dict:
        """What a checkpoint keeps."""
        return dict(curve=self.curve, seen=self.seen, samples=self.samples)

    def load_state_dict(self, state: dict) -> None:
        """The inverse."""
        vars(self).update(state)

    def add(self, labels: torch.Tensor) -> None:
        """Count a batch that was learned, labels int64 (B,), and evaluate where one is due."""
        if not self.every:
            return
        before, self.samples = self.samples, self.samples + len(labels)
        self.seen = sorted(set(self.seen).union(labels[labels >= 0].tolist()))      # -1: not labelled
        if self.samples // self.every == before // self.every or not self.seen:
            return
        with self.model.mid_stream():
            self.curve.append([self.samples, accuracy_on_classes(self.model, self.dataset, self.seen)])

    def results(self) -> dict:
        """Columns of the results row: A_AUC (percent) and the curve; nothing without `--eval_every`."""
        if not self.curve:
            return {}
        return dict(anytime_accuracy=round(metrics.mean(accuracy for _, accuracy in self.curve), 4),
                    anytime_curve=json.dumps([[n, round(accuracy, 4)] for n, accuracy in self.curve]))
