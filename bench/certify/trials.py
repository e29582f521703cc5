"""A predictor and its curve under a schedule: SCROLL's from sums, any other method's by runs of
main.py.
"""

import contextlib
import hashlib
import io
import itertools

import numpy as np
import torch

from bench.certify import measures
from bench.certify.measures import TestSet, anytime_accuracy, average_incremental_accuracy
from bench.certify.store import single
from bench.cli import parsing as cli
from bench.run.building import initialize
from bench.run.training import train
from scroll.embedding.embedder import MACHINE_INDEPENDENT
from scroll.ground.arguments import check_memory
from scroll.ground.errors import InputError
from scroll.ground.grid import little_endian
from scroll.ground.progress import Progress
from scroll.ground.settings import AUTO
from scroll.learners.learner import Scroll
from scroll.sums.exemplars import Exemplars
from utils.batch_norm import networks_of
from utils.evaluate import eval_mode, is_task_aware, serve

# schedules for which all is solved again; predictors kept
_SOLVES = 3
_KEPT = 64


class ScrollTrials:
    """SCROLL under a schedule: its predictor f_T and its curve, on features that are computed
    once.
    """

    SIZES = 200, 500, 2000  # |M| of the buffers whose digests stand in a certificate

    def __init__(self, options, model, dataset, specs):
        self.options = options
        self.learner = model.learner
        self.embedder = model.embedder
        images = dataset.images.train[dataset.train_ids]
        test_images = dataset.test_images
        with Progress(
            'Embedding', len(images) + len(test_images), quiet=options.non_verbose
        ) as progress:
            features, keys = model.embedder(images, progress.update)
            test_features, _ = model.embedder(test_images, progress.update)
        kept = features if self.learner.embedder is None else images
        self.samples = Exemplars(model.to_file[dataset.train_labels], keys, features, kept)
        lift = self.learner.new_statistics(features.shape[1]).lift
        self.test = TestSet(test_features, model.to_file[dataset.test_labels], lift)
        if model.embedder.cache is not None:
            model.embedder.cache.flush()
        classes, self.ranks = np.unique(self.samples.labels, return_inverse=True)
        if not np.array_equal(classes, self.test.classes):
            raise InputError(
                f'--dataset {dataset.NAME}: training and test samples are not of the same classes'
            )
        check_memory('class sums', 8 * len(classes) * (self.test.size + 1) ** 2)
        self.lifted = lift is not None
        self.parts = []
        self.solved = {}
        for rank in range(len(classes)):
            of_class = self.ranks == rank
            self.parts.append(
                self.learner.new_statistics(features.shape[1]).add(
                    features[of_class], self.samples.labels[of_class]
                )
            )
        self.test_images = test_images[self.test.order]
        checks = min(options.stream_check, len(specs))
        self.checked = set(np.linspace(len(specs) - 1, 0, checks, dtype=int).tolist())

    def asks(self, number: int) -> dict:
        """Optional checks to run for the schedule of this number."""
        buffer = number < self.options.buffers and self.learner.buffer_size > 0
        return {
            'curve_points': self.options.curve_points,
            'buffer': buffer,
            'adapt': bool(buffer and self.options.adapt),
            'stream': buffer or number in self.checked,
        }

    def run(self, number: int, spec: str, schedule) -> tuple:
        """(row, weights float64 (P,), predictions (N,)) of f_T after the whole stream."""
        asked, (segments, whole) = (
            self.asks(number),
            measures.class_segments(schedule, self.ranks),
        )
        points = measures.curve_points(schedule.cuts, self.options.curve_points)
        streamed = None
        found = []
        if asked['stream'] or not whole:
            size = self.learner.buffer_size if asked['buffer'] else 0
            streamed = Scroll(**{**self.learner.get_params(), 'buffer_size': size})
            visits = measures.learn_stream(streamed, self.samples, schedule, points)
        if whole:
            summed = measures.summed_stream(self._without_memory(), self.parts, segments, points)
        for learner in summed if whole else visits:
            found.append(self._solve(number, learner))
        f_T, predictions = found[-1]
        row = dict(
            whole_classes=whole,
            statistics_digest=learner.digest(),
            net_digest=f_T.digest(),
            streamed_digest=None,
            buffer_digest=None,
            adapted_digest=None,
            adapted_accuracy=None,
            **self._measured([said for _, said in found], segments, whole, points, schedule),
        )
        if streamed is not None:
            for _ in visits:
                pass
            row['streamed_digest'] = streamed.digest()
        if asked['buffer']:
            row['buffer_digest'] = streamed.buffer_.content().digest()
        if asked['adapt']:
            updates = streamed.adaptation.updates(len(streamed.buffer_))
            with Progress('Adapting', updates, quiet=self.options.non_verbose) as progress:
                streamed.adapt(lambda loss: progress.update())
        if streamed is not None and streamed.adapted_ is not None:
            right = streamed.predict(self.test_images) == self.test.labels
            row |= {
                'adapted_digest': streamed.adapted_.digest(),
                'adapted_accuracy': round(100 * float(right.mean()), 4),
            }
        return row, f_T.parameters(), predictions

    def _without_memory(self, **settings) -> Scroll:
        """A learner with these settings that keeps sums alone."""
        return Scroll(
            **{**self.learner.get_params(), 'buffer_size': 0, 'keep_keys': False, **settings}
        )

    def _solve(self, number: int, learner):
        """(the predictor of a learner's sums, its predictions), for equal sums once, but for
        `_SOLVES`.
        """
        digest = learner.digest()
        if number < _SOLVES or digest not in self.solved:
            predictor = learner.predictor()
            if len(self.solved) >= _KEPT:
                self.solved.pop(next(iter(self.solved)))
            self.solved[digest] = predictor, self.test.predictions(predictor)
        return self.solved[digest]

    def _measured(self, predictions, segments, whole: bool, points, schedule) -> dict:
        """Accuracies and the curve. Segments stand for tasks where classes arrive whole; where not,
        the average incremental accuracy is that of the curve."""
        hits = np.stack([self.test.class_hits(said) for said in predictions])
        samples = schedule.cuts[points + 1]
        sizes = self.test.sizes
        anytime = anytime_accuracy(hits, sizes, segments <= points[:, None])
        average = float(anytime.mean())
        if whole:
            average = average_incremental_accuracy(hits, sizes, segments, points)
        return {
            'final_accuracy': round(100 * float(hits[-1].sum() / sizes.sum()), 4),
            'average_incremental_accuracy': round(average, 4),
            'anytime_area': round(measures.anytime_area(samples, anytime), 4),
            'curve': [[int(n), round(float(a), 4)] for n, a in zip(samples, anytime)],
        }

    def claims(self, rows: list) -> tuple:
        """(name -> digests, name -> those that are claimed to be equal)."""
        digests = {
            'statistics': [
                row[name] for name in ('statistics_digest', 'streamed_digest') for row in rows
            ],
            'f_T': [row['net_digest'] for row in rows],
            'weights and predictions': [row['outcome'] for row in rows],
        }
        claimed = dict(digests)
        strategy = self.learner.strategy
        sure = [
            row
            for row in rows
            if strategy == 'hash' or (strategy != 'random' and row['whole_classes'])
        ]
        for name, column in ('buffer', 'buffer_digest'), ('f*', 'adapted_digest'):
            digests[name], claimed[name] = ([row[column] for row in some] for some in (rows, sure))
        return digests, claimed

    def lines(self, rows: list) -> tuple:
        """(name -> digest of what holds anywhere, the same of what holds on this kind of
        machine).
        """
        (digests, claimed), lines = self.claims(rows), {}
        integer = self.embedder.dtype == 'integer'
        backbone = self.learner.embedder
        anywhere = self.embedder.dtype in MACHINE_INDEPENDENT
        settings = self.learner.adaptation
        if backbone is not None:
            lines['integer network' if integer else 'network'] = self.embedder.digest
            if integer:
                lines['features of built-in images'] = self.embedder.net.golden
        lines['statistics'] = single(digests['statistics'])
        lines |= self._heads(rows) | self._buffers()
        kept = claimed['buffer']
        adapted = claimed['f*']
        if any(kept):
            lines[f'buffer of these schedules, |M| = {self.learner.buffer_size}'] = single(kept)
        bound = {'f*': single(adapted)} if any(adapted) else {}
        if anywhere and settings is not None and settings.exact:
            lines = lines | bound
            bound = {}
        return (lines, bound) if anywhere else ({}, lines | bound)

    def _heads(self, rows: list) -> dict:
        """Digests of predictors and of their predictions on the test samples, and how many are
        right.
        """
        params = self.learner.get_params()
        lines = {}
        own = params['head'], params['ridge_lambda']
        others = [
            ('ridge', params['ridge_lambda']),
            ('ridge', AUTO),
            ('ncc', params['ridge_lambda']),
        ]
        if self.lifted:  # of whose sums theirs are a part
            others = []
        heads = list(dict.fromkeys([own, *others]))
        for head in Progress('Predictors', len(heads), quiet=self.options.non_verbose).over(heads):
            name = {'ridge': f'ridge, lambda {head[1]}', 'ncc': 'nearest centroid'}.get(
                head[0], head[0]
            )
            whole = self._without_memory(head=head[0], ridge_lambda=head[1])
            predictor = self._learn(whole, slice(None)).predictor()
            said = self.test.predictions(predictor)
            lines[f'f_T, {name}'] = single(
                [predictor.digest(), *(row['net_digest'] for row in rows if head == own)]
            )
            lines[f'predictions, {name}'] = hashlib.sha256(said.astype('<i8').tobytes()).hexdigest()
            lines[f'right, {name}'] = f'{int(self.test.class_hits(said).sum())} of {len(said)}'
        return lines

    def _learn(self, learner: Scroll, ids) -> Scroll:
        """Let a learner learn these samples."""
        of = self.samples
        return learner.learn(of.samples[ids], of.features[ids], of.keys[ids], of.labels[ids])

    def _buffers(self) -> dict:
        """Digests of buffers after a stream of whole classes."""
        lines = {}
        order = np.argsort(self.ranks, kind='stable')
        kinds = list(itertools.product(('herding', 'hash'), self.SIZES))
        for strategy, size in Progress('Buffers', len(kinds), quiet=self.options.non_verbose).over(
            kinds
        ):
            learner = Scroll(
                **{**self.learner.get_params(), 'buffer_size': size, 'strategy': strategy}
            )
            for ids in np.split(order, np.cumsum(np.bincount(self.ranks))[:-1]):
                self._learn(learner, ids)
            lines[f'buffer, {strategy}, |M| = {size}'] = learner.buffer_.content().digest()
        return lines


class MethodTrials:
    """Any method, trained from scratch on each schedule."""

    def __init__(self, words, model, dataset, specs):
        if is_task_aware(model):
            raise InputError(
                f'--model {model.NAME} is task-aware (it needs the task of a sample): '
                'it has no predictor to compare'
            )
        for spec in specs:
            if not spec.startswith('split:'):  # may be refused: better now than after hours
                cli.parse_args([*words, '--schedule', spec])
        self.words = words

    def asks(self, number: int) -> dict:
        """Nothing that depends on the number of the schedule."""
        return {}

    def run(self, number: int, spec: str, schedule) -> tuple:
        """(row, weights float32 (P,), predictions (N,)) after training on the whole stream."""
        return run_method([*self.words, '--schedule', spec])

    def claims(self, rows: list) -> tuple:
        """(name -> digests, name -> those that are claimed to be equal)."""
        digests = {
            'net': [row['net_digest'] for row in rows],
            'weights and predictions': [row['outcome'] for row in rows],
        }
        return digests, digests

    def lines(self, rows: list) -> tuple:
        """Nothing that holds anywhere; the digest of the network, on this kind of machine."""
        return {}, {'net': single(row['net_digest'] for row in rows)}


def run_method(words: list) -> tuple:
    """One run of main.py with these words: (row, weights float32 (P,), predictions (N,))."""
    curve = {}
    with contextlib.redirect_stdout(io.StringIO()):
        model, dataset, args = initialize(cli.parse_args(words))
        after = model.meta_end_eval

        def end_eval(dataset, accuracies):
            sizes = [len(loader.dataset) for loader in dataset.test_loaders]
            seen = int(dataset.schedule.tasks[dataset.c_task + 1])
            curve[seen] = round(float(np.average(accuracies[0], weights=sizes)), 4)
            after(dataset, accuracies)

        model.meta_end_eval = end_eval
        measured = train(model, dataset, args)
    labels, predictions = test_predictions(model, dataset)
    points = [list(point) for point in curve.items()]
    tensors = [
        tensor
        for network in networks_of(model.net)
        for _, tensor in sorted(network.state_dict().items())
        if tensor.is_floating_point()
    ]
    weights = np.concatenate(
        [np.zeros(0, np.float32), *(tensor.float().cpu().numpy().ravel() for tensor in tensors)]
    )
    row = {
        'whole_classes': measures.class_segments(dataset.schedule, dataset.train_labels)[1],
        'net_digest': hashlib.sha256(little_endian(weights)).hexdigest(),
        'final_accuracy': round(100 * float((predictions == labels).mean()), 4),
        'average_incremental_accuracy': measured['average_incremental_accuracy'],
        'anytime_area': round(measures.anytime_area(*np.array(points).T), 4),
        'curve': points,
    }
    return row, weights, predictions


@torch.no_grad()
def test_predictions(model, dataset) -> tuple:
    """Labels, as of the files, and predictions, int64 (N,), of all test samples, by class, then as
    there.
    """
    seen = torch.as_tensor(dataset.seen_classes()).to(model.device)
    pairs = []
    with eval_mode(model.net):
        for loader in dataset.test_loaders:
            serve(loader, model)
            for inputs, labels, *_ in loader:
                pairs.append(
                    (labels.cpu(), seen[model(inputs.to(model.device))[:, seen].argmax(1)].cpu())
                )
    of_files = np.argsort(dataset.class_order)
    labels, predictions = (of_files[torch.cat(part).numpy()] for part in zip(*pairs))
    order = np.argsort(labels, kind='stable')
    return labels[order], predictions[order]
