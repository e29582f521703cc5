"""Anytime accuracy: how well a method does after n samples, on the classes that have come by then
(`--eval_every`). Prequential accuracy: on each batch before it is learned (`--prequential`).

After Koh et al. 2022, "Online continual learning on class incremental blurry task configuration
with anytime inference": a(n) is the accuracy after n samples over the test samples of the classes
seen so far, chosen among these; the area under its curve, A_AUC, is its mean over equally spaced
points.
"""

import torch

from bench.resume.state import Kept
from models.utils.frozen_features import as_images
from scroll.ground.errors import InputError
from utils import metrics
from utils.evaluate import accuracy_on_classes, hits, is_task_aware


class Anytime(Kept):
    """Evaluates at the end of each batch that brings the stream to, or past, a multiple of `every`
    samples.

    Attributes:
        curve: list of [samples seen, accuracy in percent].
        seen: labels that have come, sorted. samples: their number so far.
        right, predicted: of the samples that were predicted before they were learned."""

    NOT_KEPT = 'model', 'dataset', 'every', 'prequential'

    def __init__(self, model, dataset, every: int | None, prequential: bool):
        if (every or prequential) and is_task_aware(model):
            raise InputError(
                f'--eval_every, --prequential: {model.NAME} needs the task of each sample'
            )
        if prequential and not hasattr(dataset, 'schedule'):
            raise InputError(f'--prequential: {dataset.NAME} is not a ScheduledDataset')
        if every and hasattr(dataset, 'schedule') and every > len(dataset.schedule.order):
            raise InputError(
                f'--eval_every {every}: the stream has {len(dataset.schedule.order)} samples'
            )
        self.model = model
        self.dataset = dataset
        self.every = every
        self.prequential = prequential
        self.curve = []
        self.seen = []
        self.samples = 0
        self.right = 0
        self.predicted = 0

    def predict(self, batch) -> None:
        """Predict a batch that is to be learned, un-augmented, among the classes that have come; a
        sample counts as wrong before any has. Those without label (-1) do not count."""
        if not self.prequential:
            return
        labels = batch[1]
        images = batch[2]
        self.predicted += int((labels >= 0).sum())
        if self.seen:
            if not self.model.RAW_STREAM and images.dim() > 2:
                images = self.dataset.test_loaders[-1].dataset.transform(
                    torch.from_numpy(as_images(images))
                )
            with self.model.mid_stream():
                self.right += hits(self.model, images, labels, self.seen)

    def add(self, labels: torch.Tensor) -> None:
        """Count a batch that was learned, labels int64 (B,), and evaluate where one is due."""
        if not (self.every or self.prequential):
            return
        before = self.samples
        self.samples += len(labels)
        self.seen = sorted(set(self.seen).union(labels[labels >= 0].tolist()))  # -1: not labelled
        if not self.every or self.samples // self.every == before // self.every or not self.seen:
            return
        with self.model.mid_stream():
            accuracy = accuracy_on_classes(self.model, self.dataset, self.seen)
        self.curve.append([self.samples, accuracy])

    def results(self) -> dict:
        """Columns of the row that were asked for: A_AUC, its curve, prequential accuracy."""
        row = {}
        if self.predicted:
            row['prequential_accuracy'] = round(100 * self.right / self.predicted, 4)
        if self.curve:
            row['anytime_accuracy'] = round(metrics.mean(a for _, a in self.curve), 4)
            row['anytime_curve'] = metrics.as_text(self.curve)
        return row
