"""iCaRL: features learned with distillation, and the nearest mean of exemplars as classifier.

    python main.py --model icarl --dataset seq-digits --weights small --input_size 16
        --n_epochs 1 --lr 0.3 --buffer_size 200

Accuracy: 85 % (± 5 on other processors).
On EfficientNet-Lite0, CIFAR-100 in ten tasks, |M| = 500, two passes: 57.1 %
(results/rows/lite_comparison.csv, one seed).
"""

import torch
import torch.nn.functional as F

from core.arguments import Flag, real
from models.utils.losses import frozen_copy
from models.utils.replay_model import ReplayModel
from scroll.ground.errors import InputError
from utils.buffer import features_of, fill_buffer, icarl_replay


class Icarl(ReplayModel):
    """iCaRL (Rebuffi et al. 2017). Training data of a task: its own and the exemplars.

    Loss: binary cross-entropy against the old network's answers for old classes, one-hot for the
    others, mean over samples and the classes seen (the paper sums over these; the rates, as
    Mammoth's, go with the mean), + opt_wd * |theta|^2. Exemplars are herded on unit-length
    features, in equal numbers for each class. Their means also see the mirrored images, where the
    data set is augmented with such."""

    NAME = 'icarl'
    COMPATIBILITY = ['class-il', 'task-il']
    REFUSED_FLAGS = {'num_classes': 'its loss has a term for each class of the data set'}
    FLAGS = {'opt_wd': Flag(real(0), 1e-5, 'weight of |theta|^2 in the loss')}

    @staticmethod
    def check_args(args):
        if args.fitting_mode == 'early_stopping':
            raise InputError(
                '--fitting_mode early_stopping: icarl predicts by the means of exemplars, which '
                'the newest task has at its end alone'
            )

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset)
        self.old_net = None
        self.class_means = None

    def begin_task(self, dataset):
        self.old, self.seen = self.old_and_seen(dataset)
        icarl_replay(self, dataset)

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        self.class_means = None
        targets = F.one_hot(labels, len(self.old)).float()  # what each sigmoid should give
        if self.old_net is not None:
            with torch.no_grad():
                targets = torch.where(self.old, self.old_net(inputs).sigmoid(), targets)
        logits = self.net(inputs)[:, self.seen]
        loss = F.binary_cross_entropy_with_logits(logits, targets[:, self.seen])
        decay = sum((p**2).sum() for p in self.net.parameters())
        return self.descend(loss + self.args.opt_wd * decay)

    def end_task(self, dataset):
        fill_buffer(
            self.buffer,
            dataset,
            self.current_task,
            self.net,
            use_herding=True,
            normalize_features=True,
        )
        self.old_net = frozen_copy(self.net)
        self.class_means = None

    def compute_class_means(self) -> torch.Tensor:
        """(K, F) unit rows: mean of unit features of a class's exemplars; infinite without any."""
        images, labels = self.buffer.get_all_data()
        views = [self.plain(images)]
        if views[0].dim() == 4 and getattr(self.dataset, 'FLIP', True):  # not of feature vectors
            views.append(views[0].flip(-1))
        features = torch.stack(
            [F.normalize(features_of(self.net, view, None, self.device)) for view in views]
        ).mean(dim=0)
        means = torch.full((self.num_classes, features.shape[1]), torch.inf)
        for c in labels.unique():
            means[c] = F.normalize(features[labels.cpu() == c].mean(dim=0), dim=0)
        return means.to(self.device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Minus the distance to each class's mean, (B, K); logits before there are exemplars."""
        if self.buffer.is_empty():
            return self.net(x)
        if self.class_means is None:
            self.class_means = self.compute_class_means()
        features = F.normalize(self.net(x, returnt='features'))
        # not by matrix products: they lose digits, and infinity minus infinity is none
        mode = 'donot_use_mm_for_euclid_dist'
        distances = torch.cdist(features, self.class_means, compute_mode=mode)
        return -distances.clamp(max=torch.finfo(distances.dtype).max)
