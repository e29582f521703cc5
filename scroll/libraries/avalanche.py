"""SCROLL as a strategy of Avalanche: `train` counts an experience, once, `eval` predicts."""

import torch
from avalanche.training.templates import SupervisedTemplate

from scroll.learners.learner import Scroll


class AvalancheScroll(SupervisedTemplate):
    """Strategy of Avalanche. Logits of classes that have not come are -inf. A batch is predicted
    before it is learned, so accuracies of training are those of test-then-train.

    Args:
        model: frozen; gives features (B, d).
        num_classes: number of classes of the whole benchmark.
        learner: a `Scroll` of feature vectors; None: one with its defaults.
        options: those of the template, as `train_mb_size`.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        num_classes: int,
        learner: Scroll | None = None,
        **options,
    ):
        # the template has a step
        nothing = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0)
        super().__init__(model=model.eval(), optimizer=nothing, train_epochs=1, **options)
        self.num_classes = num_classes
        self.learner = learner or Scroll()

    def make_optimizer(self, **kwargs):
        """Do nothing: there is nothing to train."""

    @torch.no_grad()
    def forward(self) -> torch.Tensor:
        """Return logits float32 (B, K) of the batch, which is then learned while training."""
        features = self.model.eval()(self.mb_x).cpu().double().numpy()
        logits = torch.full((len(features), self.num_classes), -torch.inf)
        if hasattr(self.learner, 'statistics_'):
            seen = torch.from_numpy(self.learner.decision_function(features)).float()
            logits[:, torch.from_numpy(self.learner.classes_)] = seen
        if self.is_training:
            self.learner.partial_fit(features, self.mb_y.cpu().numpy())
        return logits.to(self.device)

    backward = optimizer_step = make_optimizer
