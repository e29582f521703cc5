"""All data at once, the upper bound: tasks are collected as they come, and learned together after the last.

    python main.py --model joint --dataset seq-cifar10
"""
import copy

import numpy as np
import torch

from models.utils.continual_model import ContinualModel
from utils.augmentations import apply_transform
from utils.evaluate import serve
from utils.schedulers import get_scheduler
from utils.training import training_mode


class Joint(ContinualModel):
    """Standard training on the union of all tasks, augmented afresh in each epoch; on one task the same as `sgd`."""
    NAME = 'joint'
    COMPATIBILITY = ['class-il', 'domain-il', 'task-il', 'general-continual']
    RAW_STREAM = True                   # nothing is learned while tasks come
    TRANSIENT = ('collected',)

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset)
        self.collected = []             # (images, labels) of each task

    def begin_task(self, dataset):
        train = dataset.train_loader.dataset
        self.collected.append((train.data, train.targets))
        self.loader = copy.deepcopy(dataset.train_loader)

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        return 0.0

    def end_task(self, dataset):
        if self.current_task < self.n_tasks - 1:
            return
        self.RAW_STREAM = False
        serve(self.loader, self)
        self.RAW_STREAM = True
        self.loader.dataset.data = np.concatenate([images for images, _ in self.collected])
        self.loader.dataset.targets = torch.cat([labels for _, labels in self.collected])
        self.opt = self.get_optimizer()                 # the loop has stepped the rates of the one it began the task with
        scheduler = get_scheduler(self, self.args)
        for _ in range(self.args.n_epochs):
            training_mode(self.net, self.args.bn)
            for inputs, labels, *_ in self.loader:
                self.opt.zero_grad()
                self.loss(self.net(inputs.to(self.device)), labels.to(self.device)).backward()
                self.opt.step()
                if scheduler and self.args.scheduler_mode == 'iter':
                    scheduler.step()
            if scheduler and self.args.scheduler_mode == 'epoch':
                scheduler.step()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (B, K) of uint8 images (B, H, W, C) or network inputs."""
        return self.net(apply_transform(x, self.normalization_transform) if x.dtype == torch.uint8 else x)
