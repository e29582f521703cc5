"""Methods whose network is kept smooth on what they replay (LiDER).

Bonicelli et al. 2022, "On the effectiveness of Lipschitz-driven rehearsal in continual learning". For
consecutive maps f, g of a batch, one row a sample, the layer between them is taken as f^T g / B, the
features' cross-moments (their transmitting matrix); its squared largest singular value, found by power
iteration, is that layer's coefficient. Two penalties: its size on replayed samples, and its distance from a
budget that is learned and begins where the network did.
"""
import torch
import torch.nn.functional as F
from torch import nn

from core.arguments import real
from models.utils.continual_model import ContinualModel
from utils.evaluate import eval_mode

_ITERATIONS = 10


def add_lipschitz_args(parser) -> None:
    """The flags of `LiderOptimizer`."""
    group = parser.add_argument_group('LiDER')
    group.add_argument('--buffer_lip_lambda', type=real(0), default=0,
                       help='weight of the coefficients on replayed samples')
    group.add_argument('--budget_lip_lambda', type=real(0), default=0,
                       help='weight of their distance from the learned budget')
    group.add_argument('--headless_init_act', choices=['relu', 'lrelu'], default='relu',
                       help='activation through which the learned budget goes')
    group.add_argument('--grad_iter_step', type=int, default=-2,
                       help='first power iteration that gradients go through; negative: counted from the '
                            'last')


class LiderOptimizer(ContinualModel):
    """Base class: call `init_net` in `begin_task` of the first task, and add the two
    losses of `net(x, returnt='full')[1]`.

    Attributes:
        lip_coeffs: float (K,), the budget of each layer, trained with the network; (0,) before `init_net`.
    """

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset)
        # from the start: checkpoints know it then
        self.lip_coeffs = nn.Parameter(torch.zeros(0, device=self.device))
        self.opt = self.get_optimizer()

    def get_parameters(self):
        """Those of the network, and the budget, for which the base class asks before it is there."""
        return [*self.net.parameters(), *([self.lip_coeffs] if 'lip_coeffs' in self._parameters else [])]

    @torch.no_grad()
    def init_net(self, dataset) -> None:
        """The budget: coefficients on the first batch of the task, as the network is now."""
        images = next(iter(dataset.train_loader))[0].to(self.device)
        with eval_mode(self.net):
            self.lip_coeffs.data = self.get_feature_lip_coeffs([images, *self.net(images, returnt='full')[1]])

    def get_feature_lip_coeffs(self, features: list) -> torch.Tensor:
        """(K - 1,): the coefficient between each two consecutive of K maps (B, ...)."""
        return torch.stack([self._coefficient(f.flatten(1), g.flatten(1)) for f,
                            g in zip(features, features[1:])])

    def _coefficient(self, f: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        """Largest eigenvalue of M^T M, M = f^T g / (B sqrt(D E)) for f (B, D),
        g (B, E); M itself is never made."""
        scale = len(f) * (f.shape[1] * g.shape[1]) ** 0.5
        first = self.args.grad_iter_step % _ITERATIONS
        v = torch.ones(g.shape[1], device=g.device, dtype=g.dtype) / g.shape[1] ** 0.5
        for i in range(_ITERATIONS):
            with torch.set_grad_enabled(torch.is_grad_enabled() and i >= first):
                product = g.T @ (f @ (f.T @ (g @ v))) / scale ** 2
                norm = product.norm()
                v = product / norm.clamp(min=torch.finfo(v.dtype).tiny)
        return norm

    def buffer_lip_loss(self, features: list) -> torch.Tensor:
        """Mean coefficient of the layers."""
        return self.get_feature_lip_coeffs(features).mean()

    def dynamic_budget_lip_loss(self, features: list) -> torch.Tensor:
        """Mean distance of the coefficients from the budget."""
        if not len(self.lip_coeffs):
            raise RuntimeError('dynamic_budget_lip_loss needs the budget: call init_net(dataset) in '
                               'begin_task of the first task')
        activation = F.relu if self.args.headless_init_act == 'relu' else F.leaky_relu
        return (self.get_feature_lip_coeffs(features) - activation(self.lip_coeffs)).abs().mean()
