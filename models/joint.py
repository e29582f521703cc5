"""All data at once, for reference: tasks are collected, and learned together after the last.

    python main.py --model joint --dataset seq-digits --weights small --input_size 16
        --lr 0.01 --n_epochs 5 --bn frozen

Accuracy: 96 % (± 5 on other processors).
On EfficientNet-Lite0, CIFAR-100 in two passes: 71.8 % (results/rows/lite_comparison.csv, one seed).
"""

import copy
import itertools

import numpy as np
import torch
from torch.utils.data import ConcatDataset, TensorDataset

from core.arguments import Flag, whole
from core.seeded_loader import create_seeded_dataloader
from datasets.utils.loader import InMemoryDataset
from models.utils.continual_model import ContinualModel
from scroll.ground.errors import InputError
from utils.augmentations import apply_transform
from utils.evaluate import serve
from utils.schedulers import get_scheduler


class Joint(ContinualModel):
    """Standard training on the union of all tasks, augmented afresh each epoch.

    Samples come in random order, whatever the schedule; those without a label are left out. On
    one task it is `sgd`. Of a stream that is not made from a data set, batches are learned as
    they came, with the augmentation that they had."""

    NAME = 'joint'
    RAW_STREAM = True  # nothing is learned while tasks come
    TRANSIENT = ('collected', 'loader')
    REFUSED_FLAGS = {
        'fitting_mode': 'it passes over all tasks together, --n_epochs times',
        'batch_iterations': 'nothing is learned while tasks come',
        'eval_epochs': 'nothing is learned before the last task ends',
    }
    FLAGS = {
        'fit_every_task': Flag(
            whole(0),
            0,
            'train from the start and evaluate after every N tasks (0: after the last alone)',
            affects='record',
        )
    }

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset)
        self.collected = []  # the data set of each task
        self.loader = None  # of the last task, unused
        self.pristine = copy.deepcopy(self.net.state_dict()) if args.fit_every_task else None
        self.batches = []  # (inputs, labels), of a stream without a data set

    def begin_task(self, dataset):
        self.revisit_task(dataset)

    def revisit_task(self, dataset):
        train = getattr(dataset.train_loader, 'dataset', None)
        if train is not None:
            self.collected.append(train)
            self.loader = copy.deepcopy(dataset.train_loader, {id(train): train})

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        if self.loader is None:
            self.batches.append((inputs.cpu(), labels.cpu()))
        return 0.0

    def union(self):
        """The loader of all samples."""
        if hasattr(self.loader, 'serve'):  # ours: all arrays as one
            data = np.concatenate([np.asarray(train.data) for train in self.collected])
            labels = torch.cat([train.labels() for train in self.collected])
            self.loader.dataset = InMemoryDataset(data, labels, self.collected[-1].transform)
            self.loader.segment_ends = None
            return self.loader
        if self.loader is not None and len(self.collected) == 1:
            return self.loader
        parts = self.collected or [TensorDataset(*batch) for batch in self.batches]
        return create_seeded_dataloader(
            self.args,
            ConcatDataset(parts),
            concern='joint',
            shuffle=True,
            batch_size=self.args.batch_size,
            drop_last=self.args.drop_last,
        )

    def end_task(self, dataset):
        due = self.ends_task_of('fit_every_task')
        if not due or self.args.inference_only or not (self.collected or self.batches):
            return
        if self.pristine:
            self.net.load_state_dict(self.pristine)
        loader = self.union()
        if not len(loader):
            raise InputError('all tasks together have not one whole batch: use --drop_last 0')
        self.RAW_STREAM = False
        serve(loader, self)
        self.RAW_STREAM = True
        # the loop has stepped the rates of the one it began the task with
        self.opt = self.get_optimizer()
        scheduler = get_scheduler(self, self.args, loader=loader)
        limit = self.get_debug_iters() if self.args.debug_mode else None
        for _, losses in self.passes('all tasks', self.args.n_epochs):
            for inputs, labels, *_ in itertools.islice(loader, limit):
                labelled = labels != -1
                if labelled.any():
                    logits = self.net(inputs[labelled].to(self.device))
                    loss = self.loss(logits, labels[labelled].long().to(self.device))
                    losses.add(self.descend(loss))
                if scheduler and self.args.scheduler_mode == 'iter':
                    scheduler.step()
            if scheduler and self.args.scheduler_mode == 'epoch':
                scheduler.step()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (B, K) of uint8 images (B, H, W, C) or network inputs."""
        if x.dtype == torch.uint8:
            x = apply_transform(x, self.normalization_transform)
        return self.net(x)
