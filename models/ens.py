"""An ensemble of keyed linear classifiers on frozen features; no replay, no tasks.

    python main.py --model ens --dataset seq-digits --weights small --input_size 16
        --n_epochs 1 --lr 0.003

Accuracy: 65 % (± 2 on other processors).
CIFAR-10 in five tasks: 56.7 % (results/rows/table_6_ensemble.csv, mean of 3 seeds).
"""

import torch
import torch.nn.functional as F

from core.arguments import Flag, real, whole
from models.utils.frozen_features import FrozenModel, as_images, decide_dtype
from scroll.ground.arguments import check_memory
from scroll.ground.errors import InputError
from scroll.ground.grid import GRID
from scroll.ground.randomness import torch_stream

_AT_ONCE = 512  # samples whose answers are held together when predicting


def shares(cosine: torch.Tensor) -> torch.Tensor:
    """s_i / sum_j s_j of cosines (B, k); equal shares where the sum vanishes (features of zero)."""
    total = cosine.sum(dim=1, keepdim=True)
    return torch.where(total.abs() > 1e-6, cosine / total, 1 / cosine.shape[1])


class Ens(FrozenModel):
    """ENS (Shanahan, Kaplanis and Mitrovic 2021).

    "Encoders and ensembles for task-free continual learning": m classifiers, each with a key
    that never changes. For a unit feature z the k classifiers of largest cosine s_i to z answer
    v_i = tau tanh((W_i z + b_i) / tau); the output is sum_i s_i v_i / sum_i s_i. Loss: minus the
    output of the true class; each weight moves by the rate, in the direction of the sign of its
    gradient. So a batch changes its true classes' weights in the classifiers it selects, and
    nothing else. (The authors' decay of 1e-8 a step, of the wrong sign, is left out.)"""

    NAME = 'ens'
    REFUSED_FLAGS = dict.fromkeys(
        ('optimizer', 'optim_wd', 'optim_mom', 'optim_nesterov', 'lr_scheduler'),
        'ENS moves each weight by the sign of its gradient',
    )
    REFUSED_FLAGS |= {'bn': 'the backbone is frozen', 'num_classes': 'it has all of the data set'}
    FLAGS = {
        'n_classifiers': Flag(whole(1), 1024, 'm'),
        'top_k': Flag(whole(1), 32, 'k, classifiers that answer'),
        'tau': Flag(real(positive=True), 250.0, 'bound of an answer'),
        'keys': Flag(
            ('normal', 'data'),
            'normal',
            "keys from N(0, 1), or with the mean and standard deviation of the first batch's "
            'features',
        ),
    }
    DEFAULTS = {'lr': 1e-4, 'n_epochs': 1, 'batch_size': 60}

    check_args = staticmethod(decide_dtype)

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset)
        if args.top_k > args.n_classifiers:
            raise InputError(
                f'--top_k {args.top_k}: there are {args.n_classifiers} classifiers '
                '(--n_classifiers)'
            )
        m = args.n_classifiers
        d = self.embedder.dim
        K = self.N_CLASSES
        random = torch_stream(args.seed, 'ensemble')
        std = (m * d) ** -0.5
        check_memory(f'--n_classifiers {m}', 4 * m * K * (d + 1))
        self.register_buffer('keys', F.normalize(torch.randn(m, d, generator=random)))
        weight = torch.nn.init.trunc_normal_(
            torch.empty(m, K, d), std=std, a=-2 * std, b=2 * std, generator=random
        )
        self.register_buffer('weight', weight)
        self.register_buffer('bias', torch.zeros(m, K))
        self.fitted_keys = args.keys == 'normal'

    def select(self, z: torch.Tensor) -> tuple:
        """(cosines (B, k), classifiers (B, k)) of unit features (B, d)."""
        return (z @ self.keys.T).topk(self.args.top_k)

    @torch.no_grad()
    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        z = self._unit(self.embedder(as_images(not_aug_inputs))[0])
        if not self.fitted_keys:
            self._fit_keys(z)
        return self.learn(z, labels.to(self.device))

    @torch.no_grad()
    def learn(self, z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """One step on unit features (B, d) and labels (B,); returns the loss."""
        cosine, chosen = self.select(z)  # (B, k)
        weight = self.weight.view(-1, z.shape[1])  # (m K, d)
        bias = self.bias.view(-1)
        at = (chosen * self.N_CLASSES + labels[:, None]).reshape(-1)  # rows of these
        v = (weight[at].view(*chosen.shape, -1) @ z[:, :, None])[..., 0] + bias[at].view_as(chosen)
        answer = torch.tanh(v / self.args.tau)  # (B, k)
        share = shares(cosine)
        push = share * (1 - answer**2)  # minus the gradient, up to 1 / B
        rows, inverse = at.unique(return_inverse=True)
        step = torch.zeros(len(rows), z.shape[1] + 1, device=self.device)
        with_bias = F.pad(z, (0, 1), value=1.0)
        step.index_add_(
            0, inverse, (push[:, :, None] * with_bias[:, None]).view(-1, z.shape[1] + 1)
        )
        weight[rows] += self.args.lr * step[:, :-1].sign()
        bias[rows] += self.args.lr * step[:, -1].sign()
        return -(share * answer * self.args.tau).sum(dim=1).mean()

    def _unit(self, quantised) -> torch.Tensor:
        """float32 unit features on the method's device."""
        return F.normalize(torch.from_numpy(quantised).to(self.device).float() / GRID)

    def _fit_keys(self, z: torch.Tensor) -> None:
        """Give the keys the mean and standard deviation of these features (B, d)."""
        if len(z) < 2:
            raise InputError(
                '--keys data needs a first batch of at least 2 samples: use a larger '
                '--batch_size, or --keys normal'
            )
        normal = self.keys * z.shape[1] ** 0.5
        self.keys = F.normalize(z.mean(dim=0) + normal * z.std(dim=0, correction=0))
        self.fitted_keys = True

    @torch.no_grad()
    def outputs(self, z: torch.Tensor) -> torch.Tensor:
        """(B, K) of unit features (B, d), by one product a classifier.

        To gather the k classifiers of each sample would copy k K d numbers a sample, ten times the
        work."""
        cosine, chosen = self.select(z)
        flat = chosen.reshape(-1)
        logits = z.new_empty(len(flat), self.N_CLASSES)
        counts = flat.bincount(minlength=len(self.keys)).tolist()
        for i, rows in enumerate(flat.argsort().split(counts)):
            samples = rows // chosen.shape[1]
            logits[rows] = torch.addmm(self.bias[i], z[samples], self.weight[i].T)
        answers = self.args.tau * torch.tanh(logits.view(*chosen.shape, -1) / self.args.tau)
        return (shares(cosine)[:, :, None] * answers).sum(dim=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs (B, K) on uint8 images (B, H, W, C) or network inputs."""
        return torch.cat(
            [self.outputs(part) for part in self._unit(self.features_of(x)).split(_AT_ONCE)]
        )
