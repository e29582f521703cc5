"""SCROLL, schedule-robust online continual learning: the library `scroll` under Mammoth's contract.

    python main.py --model scroll --dataset seq-digits --weights small --input_size 16
        --n_epochs 1 --buffer_size 200 --iterations 20

Accuracy: 93 % (± 1 on other processors).
CIFAR-100, |M| = 500, `compact`, paper's f*: 37.6 % (results/rows/figure_2_splits.csv, 3 seeds).

A frozen backbone; exact statistics and a buffer, updated once for each segment of the schedule,
whatever the batch size; f_T on demand; f* from f_T and the buffer after the last task
(`--adapt_every_task 1`: after each), always from the pristine backbone. All state is kept under the
labels of the files, so that renaming classes (`--permute_classes`) changes no digest.
"""

import copy
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch

from models.utils import learned_files, scroll_flags
from models.utils.frozen_features import FrozenModel, as_images
from scroll.adaptation.adapters import kind_for
from scroll.adaptation.training import mode_for
from scroll.files.shards import in_shard
from scroll.ground.errors import InputError
from scroll.ground.progress import track
from scroll.ground.settings import AUTO
from scroll.learners.learner import Scroll
from utils import metrics
from utils.evaluate import evaluate

_EMBED_AT_ONCE = 1024  # images: small segments wait for each other


class ScrollModel(FrozenModel):
    """SCROLL (Wang, Ciccone, Luise, Yapp, Pontil, Ciliberto 2022), Algorithm 1."""

    NAME = 'scroll'
    COMPATIBILITY = [*FrozenModel.COMPATIBILITY, 'cssl']
    # they follow from the unfinished segment
    TRANSIENT = (*FrozenModel.TRANSIENT, '_unfinished', '_glanced')
    REFUSED_FLAGS = {
        **dict.fromkeys(
            (
                'lr',
                'lr_scheduler',
                'scheduler_mode',
                'lr_milestones',
                'sched_multistep_lr_gamma',
                'batch_iterations',
            ),
            'SCROLL learns online without steps',
        ),
        **dict.fromkeys(
            ('optimizer', 'optim_wd', 'optim_mom', 'optim_nesterov'),
            'SCROLL adapts with AdaDelta (--adapt_lr, --classifier_lr)',
        ),
        **dict.fromkeys(('eval_epochs', 'fitting_mode'), 'SCROLL sees every sample once'),
        'drop_last': 'SCROLL learns from every sample',
        'bn': 'the backbone is frozen',
        'num_classes': 'it has those that came',
        'distributed': 'it trains no network',
        'code_optimization': 'its features are to be the same to the last bit',
    }

    @staticmethod
    def get_parser(parser):
        scroll_flags.add_flags(parser)
        return parser

    check_args = staticmethod(scroll_flags.check_args)

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset)
        adaptation = scroll_flags.adaptation(args, dataset)
        if args.debug_mode:
            updates = min(adaptation.updates(args.buffer_size), self.get_debug_iters())
            adaptation = replace(adaptation, iterations=updates)
        # features are learned as they are
        images = None if hasattr(dataset, 'num_inputs') else self.embedder
        learned_files.check_writable(args, images)
        if (
            images
            and args.buffer_size
            and mode_for(adaptation, self.net, args.buffer_size) == 'adapters'
        ):
            kind_for(self.net)  # an InputError better now than after the stream
        self.learner = Scroll(images, adaptation=adaptation, **scroll_flags.online(args))
        self.feature_names = getattr(getattr(dataset, 'images', None), 'feature_names', None)
        self.to_stream = np.asarray(getattr(dataset, 'class_order', np.arange(dataset.N_CLASSES)))
        self.to_file = np.argsort(self.to_stream)
        self.seconds = {'embedding': 0.0, 'statistics': 0.0, 'adaptation': 0.0}
        self.accuracies = None
        self.online = {}  # task -> accuracies of f_T on the tasks until then
        self.adapting = False  # a signal then ends the run at once
        self._force_online = False
        self._segment = []
        self._waiting = []
        self._unfinished = None
        self._glanced = 0
        if args.load_state:
            learned_files.load(self, args.load_state)

    def begin_task(self, dataset):
        ends = getattr(dataset.train_loader, 'segment_ends', None)
        self._ends = set() if ends is None else set(np.asarray(ends).tolist())
        self._arrived = 0

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        images = as_images(not_aug_inputs)
        labels = labels.cpu().numpy()
        learned = labels >= 0
        if self.args.shard:
            learned &= in_shard(images, self.args.shard)
        if learned.any():
            self._segment.append((images[learned], self.to_file[labels[learned]]))
        self._arrived += len(labels)
        if self._arrived in self._ends:
            self._end_segment()
        return 0.0

    def end_task(self, dataset):
        self._end_segment()
        self._learn()
        adapts = self.buffered and self.args.adaptation != 'none'
        if adapts and self.ends_task_of('adapt_every_task'):
            self._adapt()
        last = self.current_task == (self.args.stop_after or self.n_tasks) - 1
        if last and not hasattr(self.learner, 'statistics_'):
            raise InputError(
                'this run has seen no sample (of its --shard), so there is nothing to write'
            )

    @property
    def buffered(self) -> int:
        """Number of samples to adapt on; 0 with `--buffer_size 0`."""
        return len(getattr(self.learner, 'buffer_', None) or ()) if self.args.buffer_size > 0 else 0

    def _end_segment(self) -> None:
        if self._segment:
            self._waiting.append(tuple(np.concatenate(part) for part in zip(*self._segment)))
            self._segment = []
        self._unfinished = None
        self._glanced = 0
        if sum(len(labels) for _, labels in self._waiting) >= _EMBED_AT_ONCE:
            self._learn()

    def _learn(self) -> None:
        """Embed the waiting segments together, then learn from them one after the other."""
        if not self._waiting:
            return
        images = np.concatenate([images for images, _ in self._waiting])
        began = time.perf_counter()
        title = f'Embedding, task {self.current_task + 1}'
        with track(title, total=len(images), quiet=self.args.non_verbose) as progress:
            features, keys = self.embedder(images, progress.update)
        embedded = time.perf_counter()
        start = 0
        for _, labels in self._waiting:
            part = slice(start, start + len(labels))
            self.learner.learn(images[part], features[part], keys[part], labels, self.feature_names)
            start += len(labels)
        self._waiting = []
        self.seconds['embedding'] += embedded - began
        self.seconds['statistics'] += time.perf_counter() - embedded

    @contextmanager
    def mid_stream(self):
        """Predict with f_T of all samples so far, as if an unfinished segment had ended.

        Its samples are embedded now, and again (from the cache) at its end."""
        self._learn()
        learner = self.learner
        new = self._segment[self._glanced :]
        if new:
            self._unfinished = self._unfinished or Scroll(
                **learner.get_params() | {'buffer_size': 0, 'keep_keys': False}
            )
            images, labels = (np.concatenate(part) for part in zip(*new))
            self._unfinished.learn(images, *self.embedder(images), labels, self.feature_names)
            self._glanced = len(self._segment)
        try:
            if self._unfinished is not None:
                self.learner = copy.copy(self._unfinished)
                if hasattr(learner, 'statistics_'):
                    self.learner.merge(learner)
            yield
        finally:
            self.learner = learner

    def _adapt(self) -> None:
        began = time.perf_counter()
        updates = self.learner.adaptation.updates(len(self.learner.buffer_ or ()))
        progress = track('Adapting', total=updates, quiet=self.args.non_verbose)
        self.adapting = True
        with progress:
            self.learner.adapt(lambda loss: progress.update())
        self.adapting = False
        self.seconds['adaptation'] += time.perf_counter() - began

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (B, N_CLASSES) of f*, or of f_T where there is no f*; -inf for classes not seen.

        x: uint8 images (B, H, W, C) or network inputs (B, 3, S, S)."""
        out = torch.full((len(x), self.N_CLASSES), -torch.inf, dtype=torch.float64)
        if not hasattr(self.learner, 'statistics_'):
            return out.to(x.device)
        adapted = None if self._force_online else self.learner.adapted_
        if adapted is not None and adapted.embedder is not None:
            inputs = x.cpu()
        else:
            inputs = self.features_of(x)
        logits = (adapted or self.learner.predictor()).decision_function(inputs)
        out[:, self.to_stream[self.learner.classes_]] = torch.from_numpy(logits)
        return out.to(x.device)

    def end_eval(self, dataset, accs):
        online = accs
        if getattr(self.learner, 'adapted_', None) is not None:
            self._force_online = True
            online = evaluate(self, dataset)
            self._force_online = False
        self.online[dataset.c_task] = online[0]
        sizes = [len(loader.dataset) for loader in dataset.test_loaders]
        self.accuracies = [float(np.average(a[0], weights=sizes)) for a in (online, accs)]
        super().end_eval(dataset, accs)

    def save_files(self) -> None:
        learned_files.save(self.learner, self.args, getattr(self.dataset, 'images', None))

    def summary(self) -> list:
        learner = self.learner
        adapted = learner.adapted_
        online, final = self.accuracies
        samples = f'these {learner.statistics_.total:,} samples'
        digests = f'statistics {learner.digest()[:16]}, f_T {learner.predictor().digest()[:16]}'
        if adapted is not None:
            digests += f', f* {adapted.digest()[:16]} (on {adapted.made_on})'
        lines = [
            f'statistics and online classifier f_T are the same in any order of {samples}, on '
            + self.embedder.valid_on,
            f'digests, whole in the row: {digests}',
        ]
        if self.args.ridge_lambda == AUTO and learner.ridge_lambda_ is not None:
            lines.append(f'ridge lambda {learner.ridge_lambda_:g}, chosen from the statistics')
        if adapted is not None:
            lines.append(
                f'online classifier f_T {online:.2f} %, adapted model f* {final:.2f} % '
                f'({adapted.mode}, on {len(learner.buffer_)} stored samples)'
            )
            if final < online:
                lines.append(
                    'warning: f* does worse than f_T here: fewer --iterations or smaller steps '
                    '(--adapt_lr, --classifier_lr) may help'
                )
        return lines

    def results(self) -> dict:
        learner = self.learner
        adapted = learner.adapted_
        online, final = (round(a, 4) for a in self.accuracies)
        R = self.online.values()
        row = {
            'online_accuracy': online,
            'online_average_incremental_accuracy': round(
                metrics.average_incremental_accuracy(R), 4
            ),
            'online_accuracy_matrix': metrics.as_text(R),
            'adapted_accuracy': final if adapted else None,
            'statistics_digest': learner.digest(),
            'online_digest': learner.predictor().digest(),
            'embedding_digest': self.embedder.digest,
            'buffered': self.buffered,
            'buffer_digest': learner.buffer_.content().digest() if self.buffered else None,
            'adapted_digest': adapted and adapted.digest(),
            'adapted_on': adapted and adapted.made_on,
            'adapted_mode': adapted and adapted.mode,
            'initial_scale': adapted and adapted.initial_scale,
            'final_scale': adapted and adapted.scale,
            'ridge_lambda_used': learner.ridge_lambda_,
        }
        return row | {f'seconds_{stage}': round(s, 3) for stage, s in self.seconds.items()}
