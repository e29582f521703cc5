"""Dark experience replay++: logits and labels of the past are replayed, in two draws.

    python main.py --model derpp --dataset seq-digits --weights small --input_size 16
        --n_epochs 1 --lr 0.03 --buffer_size 200

Accuracy: 57 % (± 10 on other processors).
On EfficientNet-Lite0, CIFAR-100 in ten tasks, |M| = 500, two passes: 53.3 %
(results/rows/lite_comparison.csv, one seed).
"""

from core.arguments import Flag, real
from models.der import Der


class Derpp(Der):
    """DER++ (Buzzega et al. 2020, equation 7).

    CE(f(x), y) + alpha |f(x') - z'|^2 + beta CE(f(x''), y'')."""

    NAME = 'derpp'
    ROWS = ('examples', 'labels', 'logits')
    FLAGS = {**Der.FLAGS, 'beta': Flag(real(0), 0.5, 'weight of replayed labels')}

    def with_replay(self, loss):
        loss = super().with_replay(loss)
        replayed, stored_labels, _ = self.replay()
        return loss + self.args.beta * self.loss(self.net(replayed), stored_labels)
