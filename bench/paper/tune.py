"""Tune methods on held-out *training* data, the same number of trials for each, for
`models/config/`.

    python scripts/tune.py --dataset seq-cifar100 --weights small --models er-ace ssil scroll
    --num_threads 1

A trial is a run of main.py on the first `--tasks` tasks without the samples whose key (digest of
the pixels) is divisible by ten, and is judged by its accuracy on those. One that is no better than
guessing a class is void: another is drawn. Rows go to `<out>/<dataset>/<model>.csv`; the same
command resumes a killed tuning. Flags of main.py go behind the script's own (docs/tuning.md).
"""

import contextlib
import copy
import functools
import io
import itertools
import shlex
import time
from pathlib import Path

import numpy as np
import yaml

from bench import flag_words
from bench.cli import parsing as cli
from bench.paper.grids import SPACES, beyond, plan, space_of
from bench.run.building import initialize
from core.arguments import ArgumentParser, whole
from core.configs import read_yaml
from core.loss_watch import Diverged
from core.plugins import ROOT, normalise
from core.rows import append_row, read_rows
from scroll.adaptation import Adaptation
from scroll.ground.archive import atomic_write, take_lock
from scroll.ground.errors import InputError

CONFIG = ROOT / 'models' / 'config'
_PASSES = '5'  # over each task, of offline methods
_VERSION = '2'  # of grids and trials: rows of others are not read
_CONDITIONS = 'input_size', 'predictor', 'n_epochs', 'n_splits'  # that a rule names, where given
_SEEDS = 100, 101, 102  # orders of classes; no table has these
_BEYOND = 3  # trials beyond the edges of the grid, at most
_FEWEST = 4  # samples of a batch: fewer make batch norms diverge
_NOT_SHOWN = (
    'base_path',
    'results_path',
    'non_verbose',
    'device',
    'num_threads',
    'checkpoint_every',
    'resume',
)  # of this machine, or of the script
_AT_THE_END = {'gdumb': 'fit_every_task', 'joint': 'fit_every_task', 'scroll': 'adapt_every_task'}


def parse_options(words=None) -> tuple:
    """(the script's own options, the flags of main.py)."""
    parser = ArgumentParser(prog='tune.py', description=__doc__)
    flag = parser.add_argument
    flag('--dataset', required=True, help='one that main.py --help names')
    flag(
        '--models',
        nargs='+',
        type=normalise,
        default=list(SPACES),
        choices=list(SPACES),
        metavar='MODEL',
        help=f'of {", ".join(SPACES)}',
    )
    flag('--weights', default='compact')
    flag(
        '--buffer_size',
        '--buffer_sizes',
        type=whole(1),
        default=500,
        help='of the runs that the values are tuned for; they serve any',
    )
    flag(
        '--trials',
        type=whole(1),
        default=8,
        help='of each method, without void ones; as many again are drawn at most',
    )
    flag('--tasks', type=whole(1), default=2, help='first tasks of the stream that a trial learns')
    flag(
        '--finalists',
        type=whole(1),
        default=2,
        help='best trials that are run again on --final_tasks (1: none)',
    )
    flag(
        '--final_tasks',
        type=whole(1),
        default=5,
        help='first tasks of the stream that finalists learn',
    )
    flag('--base_path', default='./data/')
    flag('--out', default='results/tuning', help='folder of the rows of trials')
    options, flags = parser.parse_known_args(words)
    if len(flags) % 2:
        raise InputError(f'{" ".join(flags)}: expected flags of main.py with one value each')
    return options, flags


def accuracy_of(words: list) -> float:
    """Percent, of a run of main.py on its held-out samples; 0 where its loss ended up infinite."""
    from bench.run.training import train

    with contextlib.redirect_stdout(io.StringIO()):
        model, dataset, args = initialize(cli.parse_args(words))
        try:
            return train(model, dataset, args, test=False)['final_accuracy']
        except Diverged:
            return 0.0


class Tuning:
    """One method on one data set with one backbone."""

    def __init__(self, model: str, options, flags: list):
        from backbone import weights
        from models import get_model_class

        given = dict(zip((flag.lstrip('-') for flag in flags[::2]), flags[1::2]))
        online = get_model_class(model).ONLINE  # one pass, whatever --n_epochs says
        passes = '' if online else given.get('n_epochs', _PASSES)
        self.model, self.options = model, options
        self.passes = {'n_epochs': passes} if passes else {}
        self.space = space_of(model, passes == '1', given)
        self.conditions = {
            name: given[name]
            for name in _CONDITIONS
            if name in given and not (online and name == 'n_epochs')
        }
        self.flags = {
            name: text
            for name, text in given.items()
            if name not in self.space and name not in _CONDITIONS
        }
        self.psi = (
            '' if options.weights == 'none' else weights.load(options.weights, tensors=False).digest
        )
        self.path = Path(options.out) / options.dataset / f'{model}.csv'
        self.rows = read_rows(self.path, [])

    def words(self, values: dict, tasks: int, seed: int = _SEEDS[0]) -> dict:
        """The flags of a trial on the first tasks, whose buffer is as much of `--buffer_size`."""
        size = max(1, round(self.options.buffer_size * self.share(tasks)))
        size -= _too_few(size, values.get('fitting_batch_size'))
        words = self._words(size, values, tasks, seed)
        if self.model == 'scroll':
            # the whole buffer, and not that of a trial, decides whether all of the network is tuned
            threshold = max(1, round(Adaptation.threshold * self.share(tasks)))
            words.setdefault('adaptation_threshold', threshold)
        if any(_too_few(n, values.get('batch_size')) for n in self.samples(tasks, seed)[0]):
            words.setdefault('drop_last', 1)
        return words

    def _words(self, size: int, values: dict, tasks: int, seed: int) -> dict:
        options = self.options
        words = {
            'model': self.model,
            'dataset': options.dataset,
            'weights': options.weights,
            'base_path': options.base_path,
            'results_path': 'trials',
            'model_config': 'default',
            'non_verbose': 1,
            'validation': 10,
            'validation_by': 'key',
            'stop_after': tasks,
            'permute_classes': 1,
            'seed': seed,
        }
        if 'resume' not in self.flags:
            words['resume'] = 'always'  # also if the code has changed since
        if self.model in _AT_THE_END:
            words[_AT_THE_END[self.model]] = tasks
        words |= self.conditions | ({'buffer_size': size} if _has_buffer(self.model) else {})
        words |= self.passes | values
        for name in words.keys() & self.flags.keys():
            raise InputError(f'--{name}: scripts/tune.py sets it itself; leave it out')
        return words | self.flags

    def run(self, values: dict, tasks: int, title: str, seed: int = _SEEDS[0]) -> float:
        """Accuracy of a trial, in percent: from its row, or of a run whose row is then written."""
        words = self.words(values, tasks, seed)
        shown = {name: value for name, value in words.items() if name not in _NOT_SHOWN}
        known = {
            'space': _VERSION,
            'psi': self.psi[:16],
            'command': shlex.join(flag_words(**shown)),
        }
        for row in self.rows:
            if known.items() <= row.items():
                return float(row['accuracy'])
        began = time.process_time()
        accuracy = accuracy_of(flag_words(**words))
        void = self.is_void(accuracy, tasks)
        row = known | dict(
            buffer_size=self.options.buffer_size,
            accuracy=accuracy,
            void=int(void),
            **values,
            seconds=round(time.process_time() - began, 1),
        )
        append_row(self.path.parent, row, self.path.name)  # each trial as soon as it is known
        self.rows.append({name: str(value) for name, value in row.items()})
        tried = ', '.join(f'{name} {value}' for name, value in values.items())
        print(f'{title}: {tried}: {accuracy:.2f} %{", void" * void}', flush=True)
        return accuracy

    def is_void(self, accuracy: float, tasks: int) -> bool:
        """Whether an accuracy, in percent, is that of a network that ends in one class: at most
        three standard errors of the held-out samples above 1 / classes."""
        chance = 1 / round(self.share(tasks) * self.stream(_SEEDS[0]).N_CLASSES)
        error = (chance * (1 - chance) / self.samples(tasks, _SEEDS[0])[1]) ** 0.5
        return not accuracy > 100 * (chance + 3 * error)

    def search(self, title: str) -> tuple:
        """(values of all trials, their accuracies, how many of the last are beyond an edge)."""
        drawn, scores, further, options = [], [], 0, self.options
        planned = plan(self.model, 2 * options.trials, self.space)
        while True:
            ranked = self.ranked(scores)
            if planned and len(ranked) < options.trials:
                values = planned.pop(0)
            elif further < _BEYOND and (values := self.next_beyond(drawn, ranked)):
                further += 1
            else:
                return drawn, scores, further
            drawn.append(values)
            scores.append(self.run(values, options.tasks, f'{title} {len(drawn)}'))

    def ranked(self, scores: list) -> list:
        """Numbers of the trials that are not void, the best first."""
        best_first = sorted(range(len(scores)), key=lambda i: -scores[i])
        return [i for i in best_first if not self.is_void(scores[i], self.options.tasks)]

    def next_beyond(self, drawn: list, ranked: list):
        """The best trial's values with one beyond its edge that main.py takes, or None."""
        best = drawn[ranked[0]] if ranked else {}
        for name, value in beyond(self.space, best, drawn).items():
            with contextlib.suppress(InputError):
                cli.parse_args(flag_words(**self.words(best | {name: value}, self.options.tasks)))
                return best | {name: value}
        return None

    def tune(self):
        """The rule of the best trial; None if all are void."""
        options = self.options
        if options.finalists > 1 and options.trials > 1:
            self.share(options.final_tasks)  # refused before the first trial
        of_size = f', |M| = {options.buffer_size}' if _has_buffer(self.model) else ''
        title = f'{self.model}{of_size}, trial'
        drawn, scores, further = self.search(title)
        ranked = self.ranked(scores)
        if not ranked:
            return None
        extra = f' ({further} beyond an edge of the grid)' if further else ''
        by = [
            (
                f'tuned with {len(ranked)} trials{extra} on held-out training samples of '
                f'{options.tasks} tasks{of_size}: {scores[ranked[0]]:.1f} %'
            ),
            f'with the values of the first trial {scores[0]:.1f} %',
        ]
        chosen, finalists = ranked[0], ranked[: options.finalists]
        if len(finalists) > 1:
            final = {
                i: np.mean(
                    [
                        self.run(
                            drawn[i], options.final_tasks, f'{title} {i + 1}, order {seed}', seed
                        )
                        for seed in _SEEDS
                    ]
                )
                for i in finalists
            }
            chosen = max(finalists, key=final.get)
            by += [
                (
                    f'the best of {len(finalists)} finalists on {options.final_tasks} tasks in '
                    f'{len(_SEEDS)} orders of classes: {final[chosen]:.1f} %'
                ),
                f'on {options.tasks} tasks it has {scores[chosen]:.1f} %',
            ]
        values = drawn[chosen]
        if edges := [f'{name} {values[name]}' for name in beyond(self.space, values, drawn)]:
            by.append(f'at an edge of what was tried: {", ".join(edges)}')
        if len(drawn) > len(ranked):
            by.append(f'void trials, drawn again: {len(drawn) - len(ranked)}')
        return {'when': self.condition(), 'set': values, 'by': '; '.join(by)}

    def condition(self) -> dict:
        """Values of flags for which the rule holds."""
        options, given = self.options, dict(self.conditions)
        usual = getattr(self.stream(_SEEDS[0]), 'DEFAULT_SPLITS', None)
        if self.model == 'joint' or given.get('n_splits') == str(usual):
            given.pop('n_splits', None)  # values for the usual number of tasks serve others
        return {'weights': options.weights, 'dataset': normalise(options.dataset)} | {
            name: int(text) if text.isdecimal() else text for name, text in given.items()
        }

    @functools.cache
    def stream(self, seed: int):
        """The stream of trials in an order of classes."""
        from datasets import get_dataset

        (first,) = plan(self.model, 1, self.space)
        words = self._words(1, first, self.options.tasks, seed)
        return get_dataset(cli.parse_args(flag_words(**words)))

    def share(self, tasks: int) -> float:
        """Of the classes, those of the first tasks."""
        stream = self.stream(_SEEDS[0])
        if tasks > stream.N_TASKS:
            flag = 'tasks' if tasks == self.options.tasks else 'final_tasks'
            raise InputError(
                f'--{flag} {tasks}: this stream has {stream.N_TASKS} tasks; use at '
                f'most {stream.N_TASKS}'
            )
        return sum(len(stream.task_classes(t)) for t in range(tasks)) / stream.N_CLASSES

    @functools.cache
    def samples(self, tasks: int, seed: int) -> tuple:
        """(training samples of each part of the first tasks that is cut into batches, held-out)."""
        stream, found, held_out = copy.copy(self.stream(seed)), [], 0
        stream.test_loaders = []
        for _ in range(tasks):
            loader, test = stream.get_data_loaders()
            ends = getattr(loader, 'segment_ends', None)
            found += [len(loader.dataset)] if ends is None else np.diff(ends, prepend=0).tolist()
            held_out += len(test.dataset)
        return [sum(found)] if self.model == 'joint' else found, held_out


def _too_few(samples: int, batch_size) -> int:
    """Samples of the last batch, where they are fewer than `_FEWEST`."""
    last = samples % batch_size if batch_size and samples > batch_size else 0
    return last if last < _FEWEST else 0


def _has_buffer(model: str) -> bool:
    return model not in ('lwf', 'ewc-on', 'ens', 'joint')


def write_rule(path: Path, tuned: dict) -> None:
    """Put the tuned rule of a backbone and data set into a config file in place of older ones,
    those for some buffer sizes too, behind all others, and more special ones, which take
    precedence, behind others; the comment at its head stays."""
    text = path.read_text(encoding='utf-8') if path.is_file() else ''
    head = ''.join(
        itertools.takewhile(lambda line: line.startswith('#'), text.splitlines(keepends=True))
    )
    content = read_yaml(path) if text else {}
    kept = [
        rule
        for rule in content.get('best') or []
        if {**rule['when'], 'buffer_size': 0} != {**tuned['when'], 'buffer_size': 0}
    ]
    content['best'] = sorted(
        [*kept, tuned], key=lambda rule: len(rule['when']) * ('weights' in rule['when'])
    )
    with atomic_write(path) as file:
        file.write(
            (
                head + yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=150)
            ).encode()
        )


def main():
    options, flags = parse_options()
    for model in options.models:
        tuning = Tuning(model, options, flags)
        rule = tuning.tune()
        if rule is None:
            print(f'{model}: no rule, since all trials are void: {tuning.path}', flush=True)
            continue
        path = CONFIG / f'{model.replace("-", "_")}.yaml'
        with take_lock(f'{path}.lock'):  # other data sets may be tuned side by side
            write_rule(path, rule)
        print(f'{path}: {rule["set"]}, {rule["by"]}', flush=True)
