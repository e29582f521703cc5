"""GDumb: collect while the stream lasts, then train the pre-trained network on the buffer alone.

    python main.py --model gdumb --dataset seq-digits --weights small --input_size 16
        --n_epochs 1 --buffer_size 200 --fitting_epochs 5

Accuracy: 90 % (± 6 on other processors).
On EfficientNet-Lite0, CIFAR-100 in ten tasks, |M| = 500: 36.4 % (results/rows/lite_comparison.csv,
mean of 3 seeds).
"""

import math

import numpy as np
import torch

from core.arguments import Flag, real, whole
from models.utils.replay_model import ReplayModel
from scroll.adaptation.optimisers import eager
from scroll.ground.errors import InputError
from scroll.ground.grid import sample_keys
from scroll.ground.randomness import stream_seed, torch_stream
from utils.augmentations import cutmix_data


def learning_rates(decay: str, epochs: int, highest: float, lowest: float) -> list:
    """The rate of each pass over the buffer.

    cosine: a half-wave.
    restarts (Loshchilov and Hutter 2017): one at a tenth of the highest, then half-waves over
    1, 2, 4, ... passes, as GDumb's authors have it."""

    def rate(epoch, length):
        return lowest + (highest - lowest) * (1 + math.cos(math.pi * epoch / length)) / 2

    if decay == 'cosine':
        return [rate(e, max(epochs - 1, 1)) for e in range(epochs)]
    rates = [highest / 10]
    for i in range(epochs.bit_length()):
        rates += [rate(e, 2**i) for e in range(2**i)]
    return rates[:epochs]


class Gdumb(ReplayModel):
    """GDumb (Prabhu et al. 2020): the result depends on the content of the buffer alone.

    As in the paper of SCROLL: a reservoir (`--sampler greedy` is GDumb's own, class-balanced one),
    one cosine decay (`--lr_decay restarts` is GDumb's own), no CutMix. Accuracies before the last
    task are those of the untrained head, unless `--fit_every_task 1` (2: after every second
    task)."""

    NAME = 'gdumb'
    COMPATIBILITY = ['class-il', 'task-il', 'general-continual']
    ONLINE = True
    REFUSED_FLAGS = {
        'lr': 'its rates are --maxlr and --minlr',
        'optimizer': 'it trains with SGD',
        'optim_nesterov': 'it trains with plain momentum',
        'lr_scheduler': 'see --lr_decay',
        'minibatch_size': 'see --fitting_batch_size',
        'batch_iterations': 'it collects while the stream lasts',
    }
    FLAGS = {
        'sampler': Flag(('reservoir', 'greedy'), 'reservoir', 'how the buffer chooses'),
        'maxlr': Flag(real(0), 0.05, 'highest learning rate'),
        'minlr': Flag(real(0), 5e-4, 'lowest learning rate'),
        'lr_decay': Flag(('cosine', 'restarts'), 'cosine', 'one decay, or warm restarts'),
        'fitting_epochs': Flag(whole(0, 10**6), 20, 'passes over the buffer'),
        'fitting_batch_size': Flag(whole(2), 16, 'samples a step'),
        'cutmix_alpha': Flag(real(0), 0.0, 'of the beta distribution of CutMix; 0: no CutMix'),
        'cutmix_prob': Flag(real(0), 0.5, 'share of steps with CutMix'),
        'clip': Flag(real(positive=True), 10.0, 'largest norm of a gradient'),
        'fit_every_task': Flag(
            whole(0),
            0,
            'train and evaluate after every N tasks, 1: after each (0: after the last alone)',
            affects='record',
        ),
    }
    DEFAULTS = {'lr': 0.0, 'n_epochs': 1, 'optim_mom': 0.9, 'optim_wd': 1e-6}

    @staticmethod
    def check_args(args):
        if args.minlr > args.maxlr:
            raise InputError(f'--minlr {args.minlr:g} is above --maxlr {args.maxlr:g}')

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset)
        self.pristine = {name: t.clone() for name, t in self.net.state_dict().items()}

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        self.store(not_aug_inputs, labels)
        return 0.0

    def end_task(self, dataset):
        if self.ends_task_of('fit_every_task') and not (
            self.buffer.is_empty() or self.args.inference_only
        ):
            self.fit()

    def fit(self) -> None:
        """The pre-trained network with a new head, trained on the buffer in canonical order."""
        args = self.args
        random = torch_stream(args.seed, 'fitting')
        self.net.load_state_dict(self.pristine)
        self.renew_head()
        if hasattr(self.transform, 'generator'):
            self.transform.generator.manual_seed(stream_seed(args.seed, 'fitting augmentation'))
        images, labels = self.buffer.get_all_data()
        order = np.lexsort((sample_keys(images.cpu().numpy()), labels.cpu().numpy()))
        images = images[order]
        labels = labels[order]
        opt = eager(torch.optim.SGD)(
            self.net.parameters(),
            lr=args.maxlr,
            momentum=args.optim_mom,
            weight_decay=args.optim_wd,
        )
        rates = learning_rates(args.lr_decay, args.fitting_epochs, args.maxlr, args.minlr)
        for epoch, losses in self.passes('the buffer', len(rates)):
            opt.param_groups[0]['lr'] = rates[epoch]
            order = torch.randperm(len(labels), generator=random).to(self.device)
            batches = list(order.split(args.fitting_batch_size))
            if batches[1:] and len(batches[-1]) == 1:  # as `ImageLoader` has it
                batches[-2:] = [torch.cat(batches[-2:])]
            for rows in batches[: self.get_debug_iters() if args.debug_mode else None]:
                opt.zero_grad()
                loss = self.loss_of(self.augment(images[rows]), labels[rows], random)
                loss.backward()
                losses.add(loss)
                torch.nn.utils.clip_grad_norm_(self.net.parameters(), args.clip)
                opt.step()

    def renew_head(self) -> None:
        """A head with new random weights, from a stream of its own."""
        head = self.net.classifier
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream_seed(self.args.seed, 'head'))
            fresh = torch.nn.Linear(head.in_features, head.out_features)
        head.load_state_dict(fresh.state_dict())

    def loss_of(self, inputs, labels, random) -> torch.Tensor:
        """Cross-entropy, with CutMix in a random share of steps."""
        if not self.args.cutmix_alpha:
            return self.loss(self.net(inputs), labels)
        mixed, y_a, y_b, share = cutmix_data(
            inputs, labels, self.args.cutmix_alpha, self.args.cutmix_prob, generator=random
        )
        logits = self.net(mixed)
        return share * self.loss(logits, y_a) + (1 - share) * self.loss(logits, y_b)
