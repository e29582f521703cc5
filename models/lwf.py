"""Learning without forgetting: on new images, the old network's answers for old classes stay.

    python main.py --model lwf --dataset seq-digits --weights small --input_size 16
        --n_epochs 1 --lr 0.03

Accuracy: 22 % (± 8 on other processors).
"""

import torch

from core.arguments import Flag, real
from models.utils.continual_model import ContinualModel
from models.utils.losses import masked_cross_entropy, softened_cross_entropy
from scroll.adaptation.optimisers import eager
from utils.buffer import logits_of, plain_samples
from utils.evaluate import eval_mode


class Lwf(ContinualModel):
    """LwF (Li and Hoiem 2016).

    Cross-entropy over the classes seen + alpha * distillation over the old ones. When a task
    begins, the head's new rows are warmed up by cross-entropy over the new classes, on frozen
    features; then the logits of all its un-augmented images are recorded, and come along with
    the batches."""

    NAME = 'lwf'
    COMPATIBILITY = ['class-il', 'task-il']
    REFUSED_FLAGS = {'num_classes': 'its loss has a term for each class of the data set'}
    FLAGS = {
        'alpha': Flag(real(0), 0.5, 'weight of distillation'),
        'softmax_temp': Flag(real(positive=True), 2.0, 'temperature of distillation'),
    }
    RAW_NOT_AUG = True

    def begin_task(self, dataset):
        self.old, self.seen = self.old_and_seen(dataset)
        if self.current_task > 0 and not self.args.inference_only:
            self.warm_up(dataset)
            train = dataset.train_loader.dataset
            examples, _ = plain_samples(train, self.RAW_NOT_AUG)
            transform = getattr(self, 'normalization_transform', None)
            logits = logits_of(self.net, examples, transform, self.device)
            train.add_extra_return_field('logits', logits)

    def warm_up(self, dataset) -> None:
        """Train the head's rows of the new classes for `--n_epochs`, on features in eval mode."""
        new = self.seen & ~self.old
        head = self.net.classifier
        opt = eager(torch.optim.SGD)(head.parameters(), lr=self.args.lr)
        with eval_mode(self.net):
            for _ in range(self.args.n_epochs):
                for inputs, labels, *_ in dataset.train_loader:
                    labelled = labels >= 0
                    if not labelled.any():
                        continue
                    with torch.no_grad():
                        features = self.net(inputs[labelled].to(self.device), returnt='features')
                    targets = labels[labelled].to(self.device)
                    opt.zero_grad()
                    masked_cross_entropy(head(features), targets, new).backward()
                    opt.step()

    def observe(self, inputs, labels, not_aug_inputs, epoch=None, logits=None):
        out = self.net(inputs)
        loss = masked_cross_entropy(out, labels, self.seen)
        if logits is not None:
            distilled = softened_cross_entropy(
                logits[:, self.old], out[:, self.old], self.args.softmax_temp
            )
            loss = loss + self.args.alpha * distilled
        return self.descend(loss)
