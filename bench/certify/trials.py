"""One schedule, one outcome: what `scripts/certify.py` runs, for SCROLL and for any other method."""
import contextlib
import hashlib
import io
import json
import multiprocessing
import platform
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch

from bench.cli import parsing as cli
from bench.resume.model_state import model_state
from bench.run.building import initialize
from bench.run.training import train
from core.environment import check_memory
from scroll.certify.prefix_sums import (
    Samples,
    SummedStream,
    TestSet,
    class_segments,
    class_statistics,
    curve_points,
    first_segments,
    learn_stream,
)
from scroll.certify.robustness import anytime_accuracy, anytime_area, average_incremental_accuracy
from scroll.embedding.machine import kind_of_machine
from scroll.errors import InputError
from scroll.heads.choice import AUTOMATIC
from scroll.heads.registry import HEADS
from scroll.heads.ridge_lambda import AUTO
from scroll.io.states import lift_of
from scroll.learner import Scroll
from utils.evaluate import eval_mode, is_task_aware, serve

_SOLVED = 64                        # predictors kept, of `--solves`


def about_machine() -> dict:
    """What bits may depend on besides data and arguments."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return dict(processor=kind_of_machine(), gpu=gpu, torch=torch.__version__,
                numpy=np.__version__, python=platform.python_version(), threads=torch.get_num_threads())


class ScrollTrials:
    """SCROLL under a schedule: its predictor f_T and its curve, on features that are computed once.

    Attributes:
        labels: (N,), of the test samples in the order of predictions.
        device: where the backbone runs.
    """
    SIZES = 200, 500, 2000              # |M| of the buffers whose digests stand in a certificate

    def __init__(self, options, model, dataset, specs):
        self.options, self.learner, self.embedder = options, model.learner, model.embedder
        self.device = model.device
        images, test_images = dataset.images.train[dataset.train_ids], dataset.test_images
        features, keys = model.embedder(images)
        kept = features if self.learner.embedder is None else images
        self.samples = Samples(features, keys, model.to_file[dataset.train_labels], kept)
        lift = lift_of(self.learner.get_params(), features.shape[1])
        by_class = self.learner.head != AUTOMATIC and HEADS[self.learner.head].by_class
        self.test = TestSet(model.embedder(test_images)[0], model.to_file[dataset.test_labels], lift)
        if model.embedder.cache is not None:
            model.embedder.cache.flush()
        classes, self.ranks = np.unique(self.samples.labels, return_inverse=True)
        if not np.array_equal(classes, self.test.classes):
            raise InputError(f'--dataset {dataset.NAME}: training and test samples are not of the same '
                             'classes')
        check_memory(8 * len(classes) * (self.test.size + 1) ** 2, 'class sums')
        parts = class_statistics(features, self.samples.labels, lift, by_class)
        self.summed = SummedStream(self.learner, parts)
        self.solved, self.said = {}, (None, None)
        self.labels, self.test_images = self.test.labels, test_images[self.test.order]
        checks = min(options.stream_check, len(specs))
        self.checked = set(np.linspace(len(specs) - 1, 0, checks, dtype=int).tolist())

    def asks(self, number: int) -> dict:
        """What is done for the schedule of this number, beyond what the arguments say."""
        buffer = number < self.options.buffers and self.learner.buffer_size > 0
        return dict(curve_points=self.options.curve_points, buffer=buffer,
                    adapt=bool(buffer and self.options.adapt), stream=buffer or number in self.checked)

    def run(self, number: int, spec: str, schedule) -> tuple:
        """(row, weights float64 (P,), predictions (N,)) of f_T after the whole stream."""
        asked, segments = self.asks(number), class_segments(schedule, self.ranks)
        points, streamed = curve_points(schedule.cuts, self.options.curve_points), None
        whole = segments is not None
        if asked['stream'] or not whole:
            size = self.learner.buffer_size if asked['buffer'] else 0
            streamed = Scroll(**{**self.learner.get_params(), 'buffer_size': size})
            visits = learn_stream(streamed, self.samples, schedule, points)
        learner, predictors = followed(self.summed(segments, points) if whole else visits,
                                       self._solve(number))
        f_T = predictors[-1]
        row = dict(whole_classes=whole, statistics_digest=learner.digest(), streamed_digest=None)
        if streamed is not None:
            if whole:
                followed(visits, lambda learner: None)
            row['streamed_digest'] = streamed.digest()
        if self.said[0] is not f_T:
            self.said = f_T, self.test.predictions(f_T)
        predictions = self.said[1]
        segments = segments if whole else first_segments(schedule, self.ranks)
        row |= dict(net_digest=f_T.digest(),
                    **self._measured(predictors, predictions, segments, points, schedule, whole),
                    **self._kept(streamed, asked))
        return row, f_T.parameters(), predictions

    def _solve(self, number: int):
        """A function that makes the predictor of a learner's sums: of a later schedule, where another had the
        same sums, the one that was made of those."""
        def solve(learner):
            if not self.options.solves > 0:
                return learner.predictor()
            digest = learner.digest()
            if number < self.options.solves or digest not in self.solved:
                predictor = learner.predictor()
                if len(self.solved) >= _SOLVED:
                    return predictor
                self.solved[digest] = predictor
            return self.solved[digest]
        return solve

    def _measured(self, predictors, predictions, segments, points, schedule, whole) -> dict:
        """Accuracies and the curve. Segments stand for tasks where classes arrive whole; where not, there are
        none, and the average incremental accuracy is that of the curve.
        """
        sizes, seen = self.test.sizes, segments <= points[:, None]
        last = self.test.class_hits(predictions)
        hits = np.concatenate([self.test.hits_in_order(predictors[:-1], segments, points[:-1]), last[None]])
        samples, anytime = schedule.cuts[points + 1], anytime_accuracy(hits, sizes, seen)
        average = (average_incremental_accuracy(hits, sizes, segments, points) if whole
                   else float(anytime.mean()))
        return dict(final_accuracy=round(100 * float(last.sum() / sizes.sum()), 4),
                    average_incremental_accuracy=round(average, 4),
                    anytime_area=round(anytime_area(samples, anytime), 4),
                    curve=[[int(n), round(float(a), 4)] for n, a in zip(samples, anytime)])

    def _kept(self, learner, asked: dict) -> dict:
        """Digests of buffer and f*, and the accuracy of f*, where they are asked for."""
        row = dict(buffer_digest=learner.buffer_.content().digest() if asked['buffer'] else None,
                   adapted_digest=None, adapted_accuracy=None)
        if asked['adapt'] and learner.adapt().adapted_ is not None:
            right = learner.predict(self.test_images) == self.labels
            row |= dict(adapted_digest=learner.adapted_.digest(),
                        adapted_accuracy=round(100 * float(right.mean()), 4))
        return row

    def claims(self, rows: list) -> tuple:
        """(name -> digests, name -> whether each is claimed to equal the others)."""
        strategy = self.learner.strategy
        whole = [strategy == 'hash' or (strategy != 'random' and row['whole_classes']) for row in rows]
        digests = {'statistics': [row[name] for name in ('statistics_digest', 'streamed_digest')
                                  for row in rows],
                   'f_T': [row['net_digest'] for row in rows],
                   'weights and predictions': [row['outcome'] for row in rows],
                   'buffer': [row['buffer_digest'] for row in rows],
                   'f*': [row['adapted_digest'] for row in rows]}
        everywhere = {name: [True] * len(digests[name]) for name in list(digests)[:3]}
        return digests, everywhere | {'buffer': whole, 'f*': whole}

    def lines(self, rows: list) -> tuple:
        """(name -> digest of what holds anywhere, the same of what holds on this kind of machine), each from
        what it is made of; with features in floating point these are of this machine.
        """
        digests, claimed = self.claims(rows)
        integer = self.embedder.dtype == 'integer'
        lines, backbone = {}, self.learner.embedder
        if backbone is not None:
            lines['integer network' if integer else 'network'] = self.embedder.digest
        if integer and backbone is not None:
            lines['features of built-in images'] = self.embedder.net.golden
        lines['statistics'] = single(digests['statistics'])
        lines |= self._heads(rows) | self._buffers()
        kept = [d for d, claim in zip(digests['buffer'], claimed['buffer']) if claim]
        if any(kept):
            lines[f'buffer of these schedules, |M| = {self.learner.buffer_size}'] = single(kept)
        adapted = [d for d, claim in zip(digests['f*'], claimed['f*']) if claim]
        bound = {'f*': single(adapted)} if any(adapted) else {}
        return (lines, bound) if integer else ({}, lines | bound)

    def _heads(self, rows: list) -> dict:
        """Digests of predictors and of what they say of the test samples, and how many are right."""
        params, lines = self.learner.get_params(), {}
        own = params['head'], params['ridge_lambda']
        others = [('ridge', params['ridge_lambda']), ('ridge', AUTO), ('ncc', params['ridge_lambda'])]
        if self.summed.parts.lift is not None:              # of whose sums theirs are a part
            others = []
        for head in dict.fromkeys([own, *others]):
            name = dict(ridge=f'ridge, lambda {head[1]}', ncc='nearest centroid').get(head[0], head[0])
            learner = Scroll(**{**params, 'head': head[0], 'ridge_lambda': head[1]})
            classes = self.summed.parts.classes
            whole, = SummedStream(learner, self.summed.parts)(np.zeros(len(classes), np.int64), np.array([0]))
            predictor = whole.predictor()
            said = self.test.predictions(predictor)
            lines[f'f_T, {name}'] = single([predictor.digest(),
                                            *(row['net_digest'] for row in rows if head == own)])
            lines[f'predictions, {name}'] = hashlib.sha256(said.astype('<i8').tobytes()).hexdigest()
            lines[f'right, {name}'] = f'{int(self.test.class_hits(said).sum())} of {len(said)}'
        return lines

    def _buffers(self) -> dict:
        """Digests of buffers after a stream of whole classes."""
        lines, order = {}, np.argsort(self.ranks, kind='stable')
        for strategy in ('herding', 'hash'):
            for size in self.SIZES:
                learner = Scroll(**{**self.learner.get_params(), 'buffer_size': size, 'strategy': strategy})
                for ids in np.split(order, np.cumsum(np.bincount(self.ranks))[:-1]):
                    learner.learn(self.samples.images[ids], self.samples.features[ids],
                                  self.samples.keys[ids], self.samples.labels[ids])
                lines[f'buffer, {strategy}, |M| = {size}'] = learner.buffer_.content().digest()
        return lines

    def remarks(self, rows: list) -> list:
        """What the reader of the verdict should know."""
        summed = [row for row in rows if row['whole_classes']]
        checked = sum(row['streamed_digest'] is not None for row in summed)
        lines = [f'statistics: {len(summed)} schedules from class sums ({checked} of them also streamed, and '
                 f'compared), {len(rows) - len(summed)} streamed']
        if self.embedder.dtype != 'integer':
            lines.append(f'features in {self.embedder.dtype}: all digests but those of data, backbone and '
                         f'schedules hold on {self.embedder.holds_on} alone')
        if 0 < self.options.solves < len(rows):
            lines.append(f'f_T: solved anew under {self.options.solves} schedules, looked up by the digest '
                         'of the sums under the others')
        kept = [row for row in rows if row['buffer_digest'] is not None]
        if kept:
            known = dict(hash='under every schedule', random='nowhere')
            exact = known.get(self.learner.strategy, 'where classes arrive whole')
            whole = sum(row['whole_classes'] for row in kept)
            lines.append(f'buffers: {len(kept)} filled, {whole} of them by classes that arrive whole; '
                         f'claimed to be the same {exact}')
        return lines

    def close(self) -> None:
        """Nothing is open."""


def single(digests) -> str:
    """The digest, if all are the same, but for those that are None; else how many there are."""
    distinct = {digest for digest in digests if digest is not None}
    return distinct.pop() if len(distinct) == 1 else f'{len(distinct)} different digests'


def followed(visits, solve) -> tuple:
    """The learner at the end of a stream, and its predictors at all points, as `solve` makes them."""
    predictors = []
    for learner in visits:
        predictors.append(solve(learner))
    return learner, predictors


class MethodTrials:
    """Any method, trained from scratch on each schedule; with several jobs, in processes of their own.

    Attributes:
        labels: (N,), of the test samples in the order of predictions.
        device: where the network runs.
    """

    def __init__(self, options, words, model, dataset, specs):
        if is_task_aware(model):
            raise InputError(f'--model {model.NAME} is task-aware (it needs the task of a sample): '
                             'it has no predictor to compare')
        for spec in specs:
            if not spec.startswith('split:'):  # may be refused: better now than after hours
                cli.parse_args([*words, '--schedule', spec])
        self.words, self.device = words, model.device
        self.labels = np.sort(dataset.test_labels, kind='stable')
        spawn = multiprocessing.get_context('spawn')
        self._pool = ProcessPoolExecutor(options.jobs, spawn) if options.jobs > 1 else None

    def asks(self, number: int) -> dict:
        """Nothing that depends on the number of the schedule."""
        return {}

    def run(self, number: int, spec: str, schedule) -> tuple:
        """(row, weights float32 (P,), predictions (N,)) after training on the whole stream."""
        words = [*self.words, '--schedule', spec]
        return self._pool.submit(run_method, words).result() if self._pool else run_method(words)

    def claims(self, rows: list) -> tuple:
        """(name -> digests, name -> whether each is claimed to equal the others)."""
        digests = {'net': [row['net_digest'] for row in rows],
                   'weights and predictions': [row['outcome'] for row in rows]}
        return digests, {name: [True] * len(rows) for name in digests}

    def lines(self, rows: list) -> tuple:
        """Nothing that holds anywhere; the digest of the network, on this kind of machine."""
        return {}, dict(net=single(row['net_digest'] for row in rows))

    def remarks(self, rows: list) -> list:
        """What the reader of the verdict should know."""
        return ['trained from scratch on each schedule, with the same seed']

    def close(self) -> None:
        """End the processes."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)


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
    own = measured.get('anytime_curve')                                         # of --eval_every
    points = [list(point) for point in (json.loads(own) if own else curve.items())]
    area = anytime_area(*np.array(points).T)
    row = dict(whole_classes=class_segments(dataset.schedule, dataset.train_labels) is not None,
               net_digest=net_digest(model),
               final_accuracy=round(100 * float((predictions == labels).mean()), 4),
               average_incremental_accuracy=measured['average_incremental_accuracy'],
               anytime_area=round(area, 4), curve=points)
    return row, weights_of(model), predictions


@torch.no_grad()
def test_predictions(model, dataset) -> tuple:
    """Labels and predictions int64 (N,) of all test samples, by class and, within, as in the files."""
    seen, pairs = torch.as_tensor(dataset.seen_classes()).to(model.device), []
    with eval_mode(model.net):
        for loader in dataset.test_loaders:
            serve(loader, model)
            for inputs, labels, *_ in loader:
                pairs.append((labels.cpu(), seen[model(inputs.to(model.device))[:, seen].argmax(1)].cpu()))
    labels, predictions = (torch.cat(part).numpy() for part in zip(*pairs))
    order = np.argsort(labels, kind='stable')
    return labels[order], predictions[order]


def _tensors(model) -> dict:
    """name -> tensor: of the network, and those that the method has beside it."""
    own = {name: packed['tensor'] for name, packed in model_state(model).items() if 'tensor' in packed}
    return {**{f'net.{name}': tensor.detach().cpu() for name, tensor in model.net.state_dict().items()},
            **own}


def weights_of(model) -> np.ndarray:
    """float32 (P,): all that is not whole numbers."""
    parts = [tensor.float().numpy().ravel() for _, tensor in sorted(_tensors(model).items())
             if tensor.is_floating_point()]
    return np.concatenate(parts)


def net_digest(model) -> str:
    """SHA-256 of names and values."""
    sha = hashlib.sha256()
    for name, tensor in sorted(_tensors(model).items()):
        sha.update(name.encode())
        sha.update(np.ascontiguousarray(tensor.numpy()))
    return sha.hexdigest()
