"""SCROLL as a strategy of Avalanche: `train` counts an experience, once, `eval` predicts."""

import torch
from avalanche.training.templates import SupervisedTemplate

from scroll.learners.learner import Scroll


class AvalancheScroll(SupervisedTemplate):
    """model: frozen; gives features (B, d). num_classes: of the whole benchmark. learner: a
    `Scroll` of feature vectors; None: one with its defaults. options: of the template, as
    `train_mb_size`.

    Logits of classes that have not come are -inf. A batch is predicted before it is learned, so
    accuracies of training are those of test-then-train."""

    def __init__(self, model: torch.nn.Module, num_classes: int, learner: Scroll = None, **options):
        # the template has a step
        nothing = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0)
        super().__init__(model=model.eval(), optimizer=nothing, train_epochs=1, **options)
        self.num_classes, self.learner = num_classes, learner or Scroll()

    def make_optimizer(self, **kwargs):
        """There is nothing to train, here and in the next two."""

    @torch.no_grad()
    def forward(self) -> torch.Tensor:
        """Logits float32 (B, K) of the batch at hand, which is then learned while training."""
        features = self.model.eval()(self.mb_x).cpu().double().numpy()
        logits = torch.full((len(features), self.num_classes), -torch.inf)
        if hasattr(self.learner, 'statistics_'):
            found = torch.from_numpy(self.learner.decision_function(features)).float()
            logits[:, torch.from_numpy(self.learner.classes_)] = found
        if self.is_training:
            self.learner.partial_fit(features, self.mb_y.cpu().numpy())
        return logits.to(self.device)

    backward = optimizer_step = make_optimizer
