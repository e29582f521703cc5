"""Bias correction: distillation, then a scale and a shift of new logits from held-out samples.

    python main.py --model bic --dataset seq-digits --weights small --input_size 16
        --n_epochs 1 --lr 0.03 --buffer_size 200

Accuracy: 56 % (± 8 on other processors).
On EfficientNet-Lite0, CIFAR-100 in ten tasks, |M| = 500, two passes: 58.9 %
(results/rows/lite_comparison.csv, one seed).
"""

import numpy as np
import torch
from torch.autograd.functional import hessian, jacobian

from core.arguments import Flag, binary_to_boolean_type, real, whole
from models.utils.losses import frozen_copy, masked_cross_entropy, softened_cross_entropy
from models.utils.replay_model import ReplayModel
from scroll.ground.errors import InputError
from scroll.ground.randomness import torch_stream
from utils.buffer import fill_buffer, icarl_replay, logits_of, plain_samples

_PENALTY = 1e-6  # of stage 2: moves a beta of -12 by less than .01


def corrected(logits: torch.Tensor, newest: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """alpha * o + beta for the newest classes, o for the others (Wu et al. 2019, equation 4).

    logits: (B, K).
    newest: bool (K,).
    bias: (alpha, beta)."""
    return torch.where(newest, bias[0] * logits + bias[1], logits)


def fit_bias(logits, labels, newest, seen, iterations: int) -> torch.Tensor:
    """(alpha, beta), float64 (2,) on the CPU, of least cross-entropy over the seen classes.

    Newton's method: the loss is convex, since logits are affine in alpha and beta. So that there is
    an optimum also where samples are separable, 1e-6 / 2 * |(alpha - 1, beta)|^2 is added.

    logits: (N, K), of held-out samples.
    labels: int64 (N,).
    newest, seen: bool (K,).
    iterations: largest number of passes over the samples; about ten are needed. 0 leaves (1, 0)."""
    logits = logits.cpu().double()
    labels = labels.cpu()
    newest = newest.cpu()
    seen = seen.cpu()
    bias = identity = torch.tensor([1.0, 0.0], dtype=torch.float64)

    def loss(bias):
        penalty = _PENALTY / 2 * ((bias - identity) ** 2).sum()
        return masked_cross_entropy(corrected(logits, newest, bias), labels, seen) + penalty

    for _ in range(iterations):
        now = loss(bias)
        gradient = jacobian(loss, bias)
        step = torch.linalg.solve(hessian(loss, bias), gradient)
        gain = gradient @ step  # a parabola would sink by half of it
        if not gain > 1e-15:
            break
        while loss(bias - step) > now - gain / 4:  # too far
            step = step / 2
            gain = gain / 2
        bias = bias - step
    return bias


def some_of_each(labels: torch.Tensor, count: int, generator) -> np.ndarray:
    """bool (N,): `count` random samples of each class, or as many as it has."""
    chosen = np.zeros(len(labels), bool)
    for c in labels[labels >= 0].unique():  # -1: no label
        rows = torch.nonzero(labels == c)[:, 0]
        chosen[rows[torch.randperm(len(rows), generator=generator)[:count]].numpy()] = True
    return chosen


class Bic(ReplayModel):
    """BiC (Wu et al. 2019).

    Training data of a task: its own and the exemplars, less those held out.
    Stage 1: lambda * distillation over the n old classes + (1 - lambda) * cross-entropy over all
    n + m seen; lambda = n / (n + m), or see `--distill_weight`. Stage 2, network frozen: the
    (alpha, beta) that are best for the held-out samples, un-augmented, equally many of each
    class, new or old. Exemplars are herded, in equal numbers for each class."""

    NAME = 'bic'
    COMPATIBILITY = ['class-il', 'task-il']
    REFUSED_FLAGS = {'num_classes': 'its loss has a term for each class of the data set'}
    TRANSIENT = ('task_data',)
    FLAGS = {
        'bic_epochs': Flag(
            whole(0),
            250,
            'passes over the held-out samples, at most; stage 2 ends at its optimum, after about '
            'ten',
        ),
        'temp': Flag(real(positive=True), 2.0, 'temperature of distillation'),
        'valset_split': Flag(
            real(positive=True), 0.1, 'share of exemplars held out, at least one a class'
        ),
        'wd_reg': Flag(real(0), 0.0, 'weight of |theta|^2 in the loss of stage 1'),
        'distill_after_bic': Flag(binary_to_boolean_type, True, 'the teacher is corrected, too'),
        'distill_weight': Flag(
            ('paper', 'mammoth'), 'paper', 'lambda: n / (n + m), or 1 / (t + 1)'
        ),
        'distill_scale': Flag(real(0), 1.0, "factor of the distillation loss (Mammoth's: temp^2)"),
    }

    def __init__(self, backbone, loss, args, transform, dataset=None):
        if args.valset_split >= 1:
            raise InputError(
                f'--valset_split {args.valset_split:g}: nothing would be left to train on; use '
                'a share below 1'
            )
        super().__init__(backbone, loss, args, transform, dataset)
        self.newest = self.class_mask()
        self.bias = torch.tensor([1.0, 0.0], device=self.device)
        self.teacher = None
        self.held_out = None
        self.random = torch_stream(args.seed, 'held-out samples')

    def revisit_task(self, dataset):
        train = dataset.train_loader.dataset
        self.task_data = train.data, train.targets

    def begin_task(self, dataset):
        self.revisit_task(dataset)
        if self.current_task == 0:
            self.buffer.empty()  # of a file that was loaded: classes that are yet to come
        else:
            self.teacher = frozen_copy(self.net), self.newest, self.bias
        if not self.buffer.is_empty():
            self.join_and_hold_out(dataset)
        self.old, self.seen = self.old_and_seen(dataset)
        self.newest = self.class_mask(self.new_classes(dataset))
        self.bias = torch.tensor([1.0, 0.0], device=self.device)

    def join_and_hold_out(self, dataset) -> None:
        """Add the exemplars to the training data, and hold out samples for stage 2."""
        icarl_replay(self, dataset)
        train = dataset.train_loader.dataset
        per_class = len(self.buffer) / self.n_past_classes
        count = max(1, round(self.args.valset_split * per_class))
        held = some_of_each(train.targets, count, self.random)
        self.held_out = [part[held] for part in plain_samples(train, self.RAW_NOT_AUG)]
        train.data = train.data[~held]
        train.targets = train.targets[~held]

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        logits = self.net(inputs)
        loss = masked_cross_entropy(logits, labels, self.seen)
        if self.teacher is not None:
            weight = self.n_past_classes / self.n_seen_classes  # lambda
            if self.args.distill_weight == 'mammoth':
                weight = 1 / (self.current_task + 1)
            teacher = self.teacher_logits(inputs)[:, self.old]
            distilled = softened_cross_entropy(teacher, logits[:, self.old], self.args.temp)
            loss = weight * self.args.distill_scale * distilled + (1 - weight) * loss
        if self.args.wd_reg:
            loss = loss + self.args.wd_reg * sum((p**2).sum() for p in self.net.parameters())
        return self.descend(loss)

    @torch.no_grad()
    def teacher_logits(self, inputs) -> torch.Tensor:
        """Logits (B, K) of the network as it was at the end of the last task."""
        net, newest, bias = self.teacher
        return corrected(net(inputs), newest, bias) if self.args.distill_after_bic else net(inputs)

    def end_task(self, dataset):
        if self.held_out is not None and not self.args.inference_only:  # stage 2
            images, labels = map(torch.as_tensor, self.held_out)
            logits = logits_of(
                self.net, images, getattr(self, 'normalization_transform', None), self.device
            )
            self.bias = fit_bias(logits, labels, self.newest, self.seen, self.args.bic_epochs).to(
                self.bias
            )
        self.held_out = None
        train = dataset.train_loader.dataset
        train.data, train.targets = self.task_data
        fill_buffer(self.buffer, dataset, self.current_task, self.net, use_herding=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Corrected logits (B, K)."""
        return corrected(self.net(x), self.newest, self.bias)
