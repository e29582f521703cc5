"""GSS-Greedy: a buffer whose samples' gradients point in different directions
(Aljundi et al. 2019, algorithm 2)."""
import numpy as np
import torch
import torch.nn.functional as F

from utils import buffer
from utils.augmentations import apply_transform
from utils.evaluate import eval_mode
from utils.sample_selection import Selection


class GradientBased(Selection):
    """A sample whose gradient opposes all those it is compared to may replace one that is like others.

    Scores c in [0, 2] are 1 + the largest cosine to the gradients of random stored samples. While it is
    not full everything is kept. Then a sample with c < 1 challenges row i, drawn in proportion to C_i, and
    wins with probability C_i / (C_i + c).

    Attributes:
        scores: float64 (|M|,), C: the score each row's sample came with.
    """
    REMEMBERED = PER_ROW = ('scores',)

    def __init__(self, buffer):
        super().__init__(buffer)
        self.scores = np.zeros(buffer.buffer_size)

    def __call__(self, count, labels, scores):
        random, size, filled = self.buffer.generator, self.buffer.buffer_size, len(self.buffer)
        rows = np.full(count, -1, np.int64)
        for i, score in enumerate(torch.as_tensor(scores).double().cpu().numpy()):
            if filled < size:
                rows[i], filled = filled, filled + 1
            elif score < 1 and self.scores.sum() > 0:
                row = random.choice(size, p=self.scores / self.scores.sum())
                rows[i] = row if random.random() < self.scores[row] / (self.scores[row] + score) else -1
            if rows[i] >= 0:
                self.scores[rows[i]] = score
        return rows


class Buffer(buffer.Buffer):
    """`utils.buffer.Buffer` with GSS-Greedy's choice of what it keeps.

    Args:
        minibatch_size: n, stored samples whose gradients new ones are compared to, drawn once and used until
            `drop_cache`; of a network of P parameters they take n P floats. Each sample costs a backward pass
            of its own.
        model: a method: its `net` and `loss` give the gradients; examples are normalised as it does it.
    """

    def __init__(self, buffer_size: int, device='cpu', minibatch_size: int = 32, model=None, **options):
        super().__init__(buffer_size, device, **options)
        self.sample_selection_strategy, self.sample_selection_fn = 'gss', GradientBased(self)
        self.minibatch_size, self.model = minibatch_size, model
        self.drop_cache()
        self.reset_fathom()

    def drop_cache(self) -> None:
        """Forget the gradients of stored samples: to be called when the network has changed."""
        self.stored_gradients = None

    def reset_fathom(self) -> None:
        """Begin a new pass over the buffer: until the next call draws do not
        repeat a sample before all have come."""
        self.coming = np.zeros(0, np.int64)

    def draw(self, size: int, allowed=None) -> np.ndarray:
        """The next `size` rows of the pass; `allowed`: as in the base class, independent of it."""
        if allowed is not None:
            return super().draw(size, allowed)
        size = min(size, len(self))
        if len(self.coming) < size:                          # the last of this pass come late in the next one
            fresh = self.generator.permutation(len(self))
            late = np.isin(fresh, self.coming)
            self.coming = np.concatenate([self.coming, fresh[~late], fresh[late]])
        drawn, self.coming = np.split(self.coming, [size])
        return drawn

    def empty(self) -> None:
        super().empty()
        self.drop_cache()
        self.reset_fathom()

    def add_data(self, examples, labels=None, logits=None, task_labels=None, attention_maps=None,
                 true_labels=None, sample_selection_scores=None) -> None:
        """As the base class; the scores are computed here where none are given."""
        if sample_selection_scores is None:
            sample_selection_scores = self.gradient_scores(torch.as_tensor(examples), torch.as_tensor(labels))
        super().add_data(examples, labels, logits, task_labels, attention_maps, true_labels,
                         sample_selection_scores)

    def gradient_scores(self, examples: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """(B,): 1 + the largest cosine of each sample's gradient to those of the drawn
        stored ones; 1 if nothing is stored."""
        if self.is_empty():
            return torch.ones(len(examples))
        with eval_mode(self.model.net):                         # a batch norm cannot do with one sample
            if self.stored_gradients is None:
                rows = super().draw(self.minibatch_size)
                stored = self.examples[rows], self.labels[rows]
                self.stored_gradients = torch.stack(list(self._directions(*stored)))            # (n, P)
            return 1 + torch.stack([(self.stored_gradients @ g).max()
                                    for g in self._directions(examples, labels)])

    def _directions(self, examples, labels):
        """Yield each sample's gradient (P,), at unit length."""
        parameters = [p for p in self.model.net.parameters() if p.requires_grad]
        device = parameters[0].device
        inputs = apply_transform(examples.to(device), getattr(self.model, 'normalization_transform', None))
        for x, y in zip(inputs, labels.to(device)):
            loss = self.model.loss(self.model.net(x[None]), y[None])
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
            flat = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, gradients)]
            yield F.normalize(torch.cat([g.reshape(-1) for g in flat]), dim=0)
