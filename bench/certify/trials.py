"""A predictor and its accuracies under a schedule: SCROLL's from sums, any other method's by runs
of main.py.
"""

import contextlib
import hashlib
import io
import itertools
from typing import NamedTuple

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
from scroll.ground.progress import track
from scroll.ground.settings import AUTO
from scroll.learners.learner import Scroll
from scroll.sums.exemplars import Exemplars
from utils.batch_norm import networks_of
from utils.evaluate import eval_mode, is_task_aware, serve

# schedules for which all is solved again; predictors kept
_SOLVES = 3
_KEPT = 64


class Trial(NamedTuple):
    """A schedule's outcome: the row of a certificate, weights (P,) and predictions (N,)."""

    row: dict
    weights: np.ndarray
    predictions: np.ndarray


class ScrollTrials:
    """SCROLL under a schedule: its predictor f_T and its accuracies, on features that are computed
    once.
    """

    SIZES = 200, 500, 2000  # |M| of the buffers whose digests stand in a certificate

    def __init__(self, options, model, dataset, schedules: int):
        self.options = options
        self.learner = model.learner
        self.embedder = model.embedder
        images = dataset.images.train[dataset.train_ids]
        count = len(images) + len(dataset.test_images)
        with track('Embedding', total=count, quiet=options.non_verbose) as progress:
            features, keys = model.embedder(images, progress.update)
            test_features, _ = model.embedder(dataset.test_images, progress.update)
        samples = features if self.learner.embedder is None else images
        labels = model.to_file[dataset.train_labels]
        self.samples = Exemplars(labels, keys, features, samples)
        empty = self.learner.new_statistics(features.shape[1])
        self.lifted = empty.lift is not None
        self.test = TestSet(test_features, model.to_file[dataset.test_labels], empty.lift)
        model.embedder.flush()
        classes, self.ranks = np.unique(labels, return_inverse=True)
        if not np.array_equal(classes, self.test.classes):
            raise InputError(
                f'--dataset {dataset.NAME}: training and test samples are not of the same classes'
            )
        check_memory('class sums', 8 * len(classes) * (self.test.size + 1) ** 2)
        self.parts = []
        for label in classes:
            of_class = labels == label
            sums = self.learner.new_statistics(features.shape[1])
            self.parts.append(sums.add(features[of_class], labels[of_class]))
        self.solved = {}
        checks = min(options.stream_check, schedules)
        self.checked = set(np.linspace(schedules - 1, 0, checks, dtype=int).tolist())

    def asks(self, number: int) -> dict:
        """Optional checks to run for the schedule of this number."""
        buffer = number < self.options.buffers and self.learner.buffer_size > 0
        return {
            'curve_points': self.options.curve_points,
            'buffer': buffer,
            'adapt': bool(buffer and self.options.adapt),
            'stream': buffer or number in self.checked,
        }

    def run(self, number: int, spec: str, schedule) -> Trial:
        """f_T after the whole stream; weights: float64."""
        asked = self.asks(number)
        segments, whole = measures.class_segments(schedule, self.ranks)
        points = measures.curve_points(schedule.cuts, self.options.curve_points)
        streamed = None
        if asked['stream'] or not whole:
            size = self.learner.buffer_size if asked['buffer'] else 0
            streamed = self._learner(buffer_size=size)
            visits = measures.learn_stream(streamed, self.samples, schedule, points)
        learner = streamed
        if whole:
            learner = self._learner(buffer_size=0, keep_keys=False)
            summed = measures.summed_stream(learner, self.parts, segments, points)
        solved = [self._solve(number, each) for each in (summed if whole else visits)]
        f_T, predictions = solved[-1]
        row = {
            'whole_classes': whole,
            'statistics_digest': learner.digest(),
            'net_digest': f_T.digest(),
            'streamed_digest': None,
            'buffer_digest': None,
            'adapted_digest': None,
            **self._accuracies([each for _, each in solved], segments, whole, points),
        }
        if streamed is not None:
            for _ in visits:  # learns what is left
                pass
            row['streamed_digest'] = streamed.digest()
        if asked['buffer']:
            row['buffer_digest'] = streamed.buffer_.content().digest()
        if asked['adapt']:
            updates = streamed.adaptation.updates(len(streamed.buffer_))
            with track('Adapting', total=updates, quiet=self.options.non_verbose) as progress:
                streamed.adapt(lambda loss: progress.update())
        if streamed is not None and streamed.adapted_ is not None:
            row['adapted_digest'] = streamed.adapted_.digest()
        return Trial(row, f_T.parameters(), predictions)

    def _learner(self, **settings) -> Scroll:
        """An empty learner with these settings, else those of the run."""
        return Scroll(**self.learner.get_params() | settings)

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

    def _accuracies(self, predictions, segments, whole: bool, points) -> dict:
        """Accuracies after the stream and on average. Segments stand for tasks where classes arrive
        whole; where not, the average is that of the anytime accuracy."""
        hits = np.stack([self.test.class_hits(labels) for labels in predictions])
        sizes = self.test.sizes
        if whole:
            average = average_incremental_accuracy(hits, sizes, segments, points)
        else:
            average = float(anytime_accuracy(hits, sizes, segments <= points[:, None]).mean())
        return {
            'final_accuracy': round(100 * float(hits[-1].sum() / sizes.sum()), 4),
            'average_incremental_accuracy': round(average, 4),
        }

    def claims(self, rows: list) -> tuple[dict, dict]:
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
        for name, column in ('buffer', 'buffer_digest'), ('f*', 'adapted_digest'):
            digests[name] = [row[column] for row in rows]
            claimed[name] = [
                row[column]
                for row in rows
                if strategy == 'hash' or (strategy != 'random' and row['whole_classes'])
            ]
        return digests, claimed

    def lines(self, rows: list) -> tuple[dict, dict]:
        """(name -> digest of what holds anywhere, the same of what holds on this kind of
        machine).
        """
        digests, claimed = self.claims(rows)
        anywhere = {}
        here = {}
        lines = anywhere if self.embedder.dtype in MACHINE_INDEPENDENT else here
        if self.learner.embedder is not None:
            integer = self.embedder.dtype == 'integer'
            lines['integer network' if integer else 'network'] = self.embedder.digest
            if integer:
                lines['features of built-in images'] = self.embedder.net.golden
        lines['statistics'] = single(digests['statistics'])
        lines |= self._heads(rows) | self._buffers()
        if any(claimed['buffer']):
            name = f'buffer of these schedules, |M| = {self.learner.buffer_size}'
            lines[name] = single(claimed['buffer'])
        if any(claimed['f*']):
            exact = self.learner.adaptation is not None and self.learner.adaptation.exact
            (lines if exact else here)['f*'] = single(claimed['f*'])
        return anywhere, here

    def _heads(self, rows: list) -> dict:
        """Digests of predictors and of their predictions on the test samples, and how many are
        right.
        """
        params = self.learner.get_params()
        ridge_lambda = params['ridge_lambda']
        own = params['head'], ridge_lambda
        heads = [own]
        if not self.lifted:  # other heads' sums would be a part of a lift's
            heads += [('ridge', ridge_lambda), ('ridge', AUTO), ('ncc', ridge_lambda)]
        heads = list(dict.fromkeys(heads))
        lines = {}
        quiet = self.options.non_verbose
        for head, strength in track('Predictors', heads, quiet=quiet):
            name = {'ridge': f'ridge, lambda {strength}', 'ncc': 'nearest centroid'}.get(head, head)
            learner = self._learner(
                buffer_size=0, keep_keys=False, head=head, ridge_lambda=strength
            )
            predictor = measures.learn(learner, self.samples, slice(None)).predictor()
            predictions = self.test.predictions(predictor)
            streamed = [row['net_digest'] for row in rows if (head, strength) == own]
            right = int(self.test.class_hits(predictions).sum())
            sha = hashlib.sha256(predictions.astype('<i8').tobytes())
            lines[f'f_T, {name}'] = single([predictor.digest(), *streamed])
            lines[f'predictions, {name}'] = sha.hexdigest()
            lines[f'right, {name}'] = f'{right} of {len(predictions)}'
        return lines

    def _buffers(self) -> dict:
        """Digests of buffers after a stream of whole classes."""
        lines = {}
        kinds = list(itertools.product(('herding', 'hash'), self.SIZES))
        for strategy, size in track('Buffers', kinds, quiet=self.options.non_verbose):
            learner = self._learner(buffer_size=size, strategy=strategy)
            for rank in range(len(self.parts)):
                measures.learn(learner, self.samples, self.ranks == rank)
            lines[f'buffer, {strategy}, |M| = {size}'] = learner.buffer_.content().digest()
        return lines


class MethodTrials:
    """Any method, trained from scratch on each schedule."""

    def __init__(self, words: list, model, specs: list):
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

    def run(self, number: int, spec: str, schedule) -> Trial:
        """The network after training on the whole stream."""
        return run_method([*self.words, '--schedule', spec])

    def claims(self, rows: list) -> tuple[dict, dict]:
        """(name -> digests, name -> those that are claimed to be equal)."""
        digests = {
            'net': [row['net_digest'] for row in rows],
            'weights and predictions': [row['outcome'] for row in rows],
        }
        return digests, digests

    def lines(self, rows: list) -> tuple[dict, dict]:
        """Nothing that holds anywhere; the digest of the network, on this kind of machine."""
        return {}, {'net': single(row['net_digest'] for row in rows)}


def run_method(words: list) -> Trial:
    """One run of main.py with these words; weights: float32."""
    with contextlib.redirect_stdout(io.StringIO()):
        model, dataset, args = initialize(cli.parse_args(words))
        measured = train(model, dataset, args)
    labels, predictions = test_predictions(model, dataset)
    weights = [np.zeros(0, np.float32)]
    own = {  # what a method has learned apart from its network
        name: tensor
        for name, tensor in (model.state_dict() | vars(model)).items()
        if isinstance(tensor, torch.Tensor) and not name.startswith('net.')
    }
    for state in [*(network.state_dict() for network in networks_of(model.net)), own]:
        for _, tensor in sorted(state.items()):
            if tensor.is_floating_point():
                weights.append(tensor.float().cpu().numpy().ravel())
    weights = np.concatenate(weights)
    row = {
        'net_digest': hashlib.sha256(little_endian(weights)).hexdigest(),
        'final_accuracy': round(100 * float((predictions == labels).mean()), 4),
        'average_incremental_accuracy': measured['average_incremental_accuracy'],
    }
    return Trial(row, weights, predictions)


@torch.no_grad()
def test_predictions(model, dataset) -> tuple[np.ndarray, np.ndarray]:
    """Labels, as of the files, and predictions, int64 (N,), of all test samples, by class, then as
    there.
    """
    seen = torch.as_tensor(dataset.seen_classes()).to(model.device)
    labels = []
    predictions = []
    with eval_mode(model.net):
        for loader in dataset.test_loaders:
            serve(loader, model)
            for inputs, targets, *_ in loader:
                labels.append(targets.cpu())
                predictions.append(seen[model(inputs.to(model.device))[:, seen].argmax(1)].cpu())
    of_files = np.argsort(dataset.class_order)
    labels = of_files[torch.cat(labels).numpy()]
    predictions = of_files[torch.cat(predictions).numpy()]
    order = np.argsort(labels, kind='stable')
    return labels[order], predictions[order]
