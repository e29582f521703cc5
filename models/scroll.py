"""SCROLL, schedule-robust online continual learning: the library `scroll` under Mammoth's contract.

    python main.py --model scroll --dataset seq-cifar100 --n_splits 10 --buffer_size 500 --model_config best

37.8 % (results/rows/table_1_cifar.csv, mean of 3 seeds), as with any other number of splits.

A frozen backbone; exact statistics and a buffer, updated once for each segment of the schedule, whatever the
batch size; f_T on demand; f* from f_T and the buffer after the last task (`--adapt_every_task 1`: after
each), always from the pristine backbone. All state is kept under the labels of the files, so that renaming
classes (`--permute_classes`) changes no digest.
"""
import time
from contextlib import contextmanager

import numpy as np
import torch

from core.distributed import agree_on_arguments, world
from core.progress import Progress
from models.utils import label_scores, learned_files, scroll_flags, shared_work
from models.utils.continual_model import ContinualModel
from models.utils.frozen_features import TestFeatures, as_images, make_embedder, settle_dtype
from scroll.adaptation.adapters import kind_for
from scroll.adaptation.selection import chosen
from scroll.embedding.machine import describe_machine
from scroll.errors import InputError
from scroll.files.shards import in_shard
from scroll.learner import Scroll
from scroll.settings import AUTO
from utils.evaluate import evaluate

# small segments wait for each other: the backbone runs on chunks, the learner on segments
_EMBED_AT_ONCE = 1024
_NO_STEPS, _ONCE = 'SCROLL learns online without steps', 'SCROLL sees every sample once'


def _summary_of(trials: list) -> str:
    """The choice of cross-validation within the buffer, in a line."""
    first, best = trials[0], chosen(trials)
    if best is first:
        return 'f* is f_T: no candidate was surely better on held-out samples of the buffer'
    return (f'chosen on held-out samples of the buffer: {best.updates} updates, {best.share:g} of the way; '
            f'cross-entropy {first.loss:.3f} -> {best.loss:.3f}, accuracy {100 * first.accuracy:.1f} -> '
            f'{100 * best.accuracy:.1f} %')


class ScrollModel(ContinualModel):
    """SCROLL (Wang, Ciccone, Luise, Yapp, Pontil, Ciliberto 2022), Algorithm 1."""
    NAME = 'scroll'
    COMPATIBILITY = ['class-il', 'domain-il', 'task-il', 'general-continual', 'cssl']
    RAW_STREAM = ONLINE = SHARED = True
    # the last: again from the unfinished segment
    TRANSIENT = ('embedder', 'features_of', 'world', '_unfinished', '_glanced', 'scores')
    REFUSED_FLAGS = {**dict.fromkeys(('lr', 'lr_scheduler', 'scheduler_mode', 'lr_milestones',
                                      'sched_multistep_lr_gamma', 'batch_iterations'), _NO_STEPS),
                     **dict.fromkeys(('optimizer', 'optim_wd', 'optim_mom', 'optim_nesterov'),
                                     'SCROLL adapts with AdaDelta (--adapt_lr, --classifier_lr)'),
                     **dict.fromkeys(('eval_epochs', 'fitting_mode'), _ONCE),
                     'drop_last': 'SCROLL learns from every sample', 'bn': 'the backbone is frozen',
                     'code_optimization': 'its features are to be the same to the last bit'}

    @staticmethod
    def get_parser(parser):
        scroll_flags.add_flags(parser)
        return parser

    @staticmethod
    def check_args(args):
        settle_dtype(args)
        learned_files.check_file_args(args)

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset)
        if args.buffer_size == 0 and args.adaptation not in ('auto', 'none'):
            raise InputError(f'--adaptation {args.adaptation} needs a buffer, but --buffer_size is 0')
        self.net.requires_grad_(False)
        self.world = world()
        agree_on_arguments(args, getattr(dataset, 'schedule', None))
        if self.world.rank == 0:
            learned_files.check_writable(args)
        self.embedder = shared_work.shared(make_embedder(self.net, args, dataset, self.device), self.world)
        self.features_of = TestFeatures(self.embedder)
        adaptation = scroll_flags.adaptation(args, dataset)
        images = None if hasattr(dataset, 'num_inputs') else self.embedder  # features are learned as they are
        if images is not None and adaptation.mode_for(args.buffer_size) == 'adapters' and args.buffer_size:
            kind_for(self.net)                              # better now than after the stream
        self.learner = Scroll(images, adaptation=adaptation, **scroll_flags.online(args))
        self.feature_names = getattr(getattr(dataset, 'images', None), 'feature_names', None)
        self.to_stream = np.asarray(getattr(dataset, 'class_order', np.arange(dataset.N_CLASSES)))
        self.to_file = np.argsort(self.to_stream)
        self.seconds = dict(embedding=0.0, statistics=0.0, adaptation=0.0)
        self.online_curve, self.accuracies = [], None
        self._segment, self._waiting = [], []
        self._unfinished, self._glanced = None, 0
        self._force_online = False
        self.by_class = learned_files.ClassStatistics(self.learner) if args.by_class else None
        self.scores = None                                      # of `--save_scores`, at the end
        if args.save_scores:
            label_scores.check(args, dataset)
        if args.load_state:
            learned_files.load(self.learner, args.load_state, len(self.to_stream))

    def get_parameters(self):
        return []                                               # the backbone is frozen

    def begin_task(self, dataset):
        ends = getattr(dataset.train_loader, 'segment_ends', None)
        self._ends = set() if ends is None else set(np.asarray(ends).tolist())
        self._arrived = 0

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        images, known = as_images(not_aug_inputs), labels.cpu().numpy() >= 0
        if self.args.shard:
            known &= in_shard(images, self.args.shard)
        if known.any():
            self._segment.append((images[known], self.to_file[labels.cpu().numpy()[known]]))
        self._arrived += len(labels)
        if self._arrived in self._ends:
            self._end_segment()
        return 0.0

    def end_task(self, dataset):
        self._end_segment()
        self._learn()
        if self._adapts():
            self._adapt()
        if self.current_task == (self.args.stop_after or self.n_tasks) - 1:
            learned_files.check_learned(self.learner, self.args)

    def _adapts(self) -> bool:
        return (self.buffered > 0 and self.args.adaptation != 'none'
                and self.ends_task_of('adapt_every_task'))

    @property
    def buffered(self) -> int:
        """Samples to adapt on; none with `--buffer_size 0`."""
        buffer = getattr(self.learner, 'buffer_', None)
        return len(buffer) if buffer is not None and self.args.buffer_size > 0 else 0

    def _end_segment(self) -> None:
        if self._segment:
            self._waiting.append(tuple(np.concatenate(part) for part in zip(*self._segment)))
            self._segment = []
        self._unfinished, self._glanced = None, 0
        if sum(len(labels) for _, labels in self._waiting) >= _EMBED_AT_ONCE * self.world.size:
            self._learn()

    def _learn(self) -> None:
        """Embed the waiting segments together, then learn from them one after the other."""
        if not self._waiting:
            return
        images = np.concatenate([images for images, _ in self._waiting])
        began = time.perf_counter()
        with Progress(f'Embedding, task {self.current_task + 1}', len(images),
                      quiet=self.args.non_verbose) as progress:
            if self._needs_no_buffer():
                labels = np.concatenate([labels for _, labels in self._waiting])
                self.learner.add_statistics(shared_work.summed(self.learner, self.embedder, images, labels,
                                                      progress.update))
                self._waiting = []                              # nothing is left to be learned one by one
            else:
                features, keys = self.embedder(images, progress.update)
        embedded, start = time.perf_counter(), 0
        for _, labels in self._waiting:
            part = slice(start, start + len(labels))
            self.learner.learn(images[part], features[part], keys[part], labels, self.feature_names)
            if self.by_class is not None:
                self.by_class.add(features[part], labels)
            start += len(labels)
        self._waiting = []
        self.seconds['embedding'] += embedded - began
        self.seconds['statistics'] += time.perf_counter() - embedded

    def _needs_no_buffer(self) -> bool:
        """Whether several processes embed samples of which the statistics alone are kept."""
        return self.world.size > 1 and self.by_class is None and not (self.args.buffer_size
                                                                      or self.args.keep_keys)

    @contextmanager
    def mid_stream(self):
        """Predict with f_T of all samples so far, also of an unfinished segment, as if it had
        ended; its samples are embedded now, and again (from the cache) at its end."""
        self._learn()
        learner, new = self.learner, self._segment[self._glanced:]
        online = {**learner.get_params(), 'buffer_size': 0, 'keep_keys': False}
        if new:
            self._unfinished = self._unfinished or Scroll(**online)
            images, labels = (np.concatenate(part) for part in zip(*new))
            self._unfinished.learn(images, *self.embedder(images), labels)
            self._glanced = len(self._segment)
        if self._unfinished is not None:
            self.learner = Scroll(**online)
            for part in (learner, self._unfinished):
                if hasattr(part, 'statistics_'):
                    self.learner.add_statistics(part.statistics_)
        try:
            yield
        finally:
            self.learner = learner

    def _adapt(self) -> None:
        began = time.perf_counter()
        updates = self.learner.adaptation.updates(len(self.learner.buffer_ or ()))
        with Progress('Adapting', updates, quiet=self.args.non_verbose) as progress:
            shared_work.adapt(self.learner, self.world, lambda loss: progress.update())
        self.seconds['adaptation'] += time.perf_counter() - began

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (B, N_CLASSES) of uint8 images (B, H, W, C) or network inputs (B, 3, S, S), -inf for classes
        not seen: f*'s where there is one, else f_T's."""
        out = torch.full((len(x), self.N_CLASSES), -torch.inf, dtype=torch.float64)
        if not hasattr(self.learner, 'statistics_'):
            return out.to(x.device)
        adapted = None if self._force_online else self.learner.adapted_
        if adapted is None:
            logits = self.learner.predictor().decision_function(self.features_of(x))
        else:
            logits = adapted.decision_function(self.features_of(x) if adapted.embedder is None else x.cpu())
        out[:, self.to_stream[self.learner.classes_]] = torch.from_numpy(logits)
        return out.to(x.device)

    def curves(self) -> dict:
        return {'f_T (online)': self.online_curve}

    def end_eval(self, dataset, accs):
        online = accs
        if getattr(self.learner, 'adapted_', None) is not None:
            self._force_online = True
            online = evaluate(self, dataset)
            self._force_online = False
        self.online_curve.append((self.current_task, float(np.mean(online[0]))))
        sizes = [len(loader.dataset) for loader in dataset.test_loaders]
        self.accuracies = [float(np.average(a[0], weights=sizes)) for a in (online, accs)]
        if self.current_task == self.n_tasks and self.embedder.cache is not None:
            self.embedder.cache.flush()

    def save_files(self) -> None:
        if self.world.rank == 0:
            learned_files.save(self.learner, self.by_class, self.args, self.dataset)
            if self.scores is not None:
                self.scores.save(self.args.save_scores)

    def summary(self) -> list:
        online, final = self.accuracies
        adapted = self.learner.adapted_
        f_star = ''
        if adapted is not None:
            f_star = f', f* {adapted.digest()[:16]} (on {describe_machine(self.device)})'
        lines = [f'statistics {self.learner.digest()[:16]}, f_T '
                 f'{self.learner.predictor().digest()[:16]}{f_star}',
                 f'statistics and f_T are the same under every schedule, on {self.embedder.holds_on}']
        if self.scores is not None:
            lines += self.scores.summary()
        if self.args.ridge_lambda == AUTO and self.learner.ridge_lambda_ is not None:
            lines += [f'ridge lambda {self.learner.ridge_lambda_:g}, chosen from the statistics']
        if adapted is not None:
            lines += [f'f_T {online:.2f} % -> f* {final:.2f} % ({adapted.mode}, {len(self.learner.buffer_)} '
                      f'samples, logit scale {adapted.initial_scale:.1f} -> {adapted.scale:.1f})']
            if final < online:
                lines += ['warning: f* does worse than f_T here: fewer --iterations or smaller steps '
                          '(--adapt_lr, --classifier_lr) may help, or --adapt_select folds, which asks first']
        if self.learner.selection_:
            lines += [_summary_of(self.learner.selection_)]
        seconds = ', '.join(f'{stage} {s:.1f} s' for stage, s in self.seconds.items())
        return [*lines, f'online stage: {seconds}']

    def results(self) -> dict:
        learner, adapted = self.learner, self.learner.adapted_
        online, final = (round(a, 4) for a in self.accuracies)
        row = dict(processes=self.world.size, online_accuracy=online, adapted_accuracy=None,
                   statistics_digest=learner.digest(), online_digest=learner.predictor().digest(),
                   embedding_digest=self.embedder.digest, buffered=0, buffer_digest=None, adapted_digest=None,
                   adapted_on=None, adapted_mode=None, initial_scale=None, final_scale=None,
                   ridge_lambda_used=learner.ridge_lambda_)
        if self.buffered:
            row |= dict(buffered=len(learner.buffer_), buffer_digest=learner.buffer_.content().digest())
        if self.args.save_scores:                               # every process comes here, and takes part
            self.scores = label_scores.of(learner, self.dataset, self.to_file)
            row |= dict(label_error_auc=self.scores.auc)
        if adapted is not None:
            row |= dict(adapted_accuracy=final, adapted_digest=adapted.digest(),
                        adapted_on=describe_machine(self.device), adapted_mode=adapted.mode,
                        initial_scale=adapted.initial_scale, final_scale=adapted.scale)
        elif learner.selection_ is not None:            # f* is f_T
            row |= dict(adapted_accuracy=final, adapted_mode='f_T')
        return row | {f'seconds_{stage}': round(s, 3) for stage, s in self.seconds.items()}
