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
import re
import shlex
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from bench import flag_words
from bench.cli import parsing as cli
from bench.paper.grids import SPACES, beyond, plan, space_of
from bench.run.building import initialize
from core.arguments import ArgumentParser, column_of, whole
from core.configs import read_yaml
from core.loss_watch import Diverged
from core.plugins import ROOT, normalise
from core.rows import append_row, read_rows
from scroll.adaptation import Adaptation
from scroll.ground.archive import alone, write_text
from scroll.ground.errors import InputError

CONFIG = ROOT / 'models' / 'config'
_PASSES = '5'  # over each task, of offline methods
_VERSION = '2'  # of grids and trials: rows of others are not read
_CONDITIONS = ('input_size', 'predictor', 'n_epochs', 'n_splits')  # that a rule names, where given
_ORDERS = 100, 101, 102  # seeds of orders of classes; no table has these
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
    if len(flags) % 2 or any('=' in name for name in flags[::2]):
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


class Trial(NamedTuple):
    """A run of main.py on held-out samples. accuracy: percent. is_void: no better than guessing."""

    values: dict
    accuracy: float
    is_void: bool


class Tuning:
    """One method on one data set with one backbone."""

    def __init__(self, model: str, options, flags: list):
        from backbone import weights
        from models import get_model_class

        texts = {
            column_of(flag.lstrip('-'), _CONDITIONS): text
            for flag, text in zip(flags[::2], flags[1::2])
        }
        self.model = model
        self.options = options
        self.passes = {}
        if get_model_class(model).ONLINE:  # one pass, whatever --n_epochs says
            texts.pop('n_epochs', None)
        else:
            self.passes['n_epochs'] = texts.get('n_epochs', _PASSES)
        self.space = space_of(model, self.passes.get('n_epochs') == '1', texts)
        self.conditions = {name: texts[name] for name in _CONDITIONS if name in texts}
        own = self.space.keys() | _CONDITIONS
        self.flags = {name: text for name, text in texts.items() if name not in own}
        self.psi = ''
        if options.weights != 'none':
            self.psi = weights.load(options.weights, tensors=False).digest
        self.path = Path(options.out) / options.dataset / f'{model}.csv'
        self.rows = read_rows(self.path)
        self.stream = functools.cache(self.stream)
        self.samples = functools.cache(self.samples)

    def words(self, values: dict, tasks: int, order: int = _ORDERS[0]) -> dict:
        """The flags of a trial on the first tasks, whose buffer is as much of `--buffer_size`."""
        size = max(1, round(self.options.buffer_size * self.share(tasks)))
        size -= _too_few(size, values.get('fitting_batch_size'))
        words = self._words(size, values, tasks, order)
        if self.model == 'scroll':
            # the whole buffer, and not that of a trial, decides whether all of the network is tuned
            threshold = max(1, round(Adaptation.threshold * self.share(tasks)))
            words.setdefault('adaptation_threshold', threshold)
        if any(_too_few(n, values.get('batch_size')) for n in self.samples(tasks, order)[0]):
            words.setdefault('drop_last', 1)
        return words

    def _words(self, size: int, values: dict, tasks: int, order: int) -> dict:
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
            'seed': order,
        }
        if 'resume' not in self.flags:
            words['resume'] = 'always'  # also if the code has changed since
        if self.model in _AT_THE_END:
            words[_AT_THE_END[self.model]] = tasks
        words |= self.conditions
        if _has_buffer(self.model):
            words['buffer_size'] = size
        words |= self.passes | values
        for name in words.keys() & self.flags.keys():
            raise InputError(f'--{name}: scripts/tune.py sets it itself; leave it out')
        return words | self.flags

    def run(self, values: dict, tasks: int, order: int = _ORDERS[0]) -> Trial:
        """A trial from its row, or a run whose row is then written."""
        words = self.words(values, tasks, order)
        shown = {name: value for name, value in words.items() if name not in _NOT_SHOWN}
        identity = {
            'space': _VERSION,
            'psi': self.psi[:16],
            'command': shlex.join(flag_words(**shown)),
        }
        for row in self.rows:
            if identity.items() <= row.items():
                return Trial(values, float(row['accuracy']), row['void'] == '1')
        began = time.process_time()
        accuracy = accuracy_of(flag_words(**words))
        trial = Trial(values, accuracy, self.is_void(accuracy, tasks))
        row = {
            **identity,
            'buffer_size': self.options.buffer_size,
            'accuracy': accuracy,
            'void': int(trial.is_void),
            **values,
            'seconds': round(time.process_time() - began, 1),
        }
        # each trial as soon as it is known
        self.rows = read_rows(append_row(self.path.parent, row, self.path.name))
        tried = ', '.join(f'{name} {value}' for name, value in values.items())
        void = ', void' if trial.is_void else ''
        print(
            f'{self.model}, {tasks} tasks, order {order}: {tried}: {accuracy:.2f} %{void}',
            flush=True,
        )
        return trial

    def is_void(self, accuracy: float, tasks: int) -> bool:
        """True if an accuracy, in percent, is that of a network that ends in one class: at most
        three standard errors of the held-out samples above 1 / classes."""
        chance = 1 / round(self.share(tasks) * self.stream().N_CLASSES)
        error = (chance * (1 - chance) / self.samples(tasks)[1]) ** 0.5
        return not accuracy > 100 * (chance + 3 * error)

    def search(self) -> tuple[list, int]:
        """(all trials, how many of the last are beyond an edge, but for void ones)."""
        options = self.options
        trials = []
        for values in plan(self.model, 2 * options.trials, self.space):
            if len(_ranked(trials)) < options.trials:
                trials.append(self.run(values, options.tasks))
        planned = len(trials)
        while len(trials) < planned + _BEYOND and (values := self.next_beyond(trials)):
            trials.append(self.run(values, options.tasks))
        return trials, len(_ranked(trials[planned:]))

    def next_beyond(self, trials: list) -> dict | None:
        """The best trial's values with one beyond its edge that main.py takes, or None."""
        best = next(iter(_ranked(trials)), None)
        further = beyond(self.space, best.values, trials) if best else {}
        for name, value in further.items():
            values = best.values | {name: value}
            with contextlib.suppress(InputError):
                cli.parse_args(flag_words(**self.words(values, self.options.tasks)))
                return values
        return None

    def tune(self) -> dict | None:
        """The rule of the best trial; None if all are void."""
        options = self.options
        if options.finalists > 1 and options.trials > 1:  # refused before the first trial
            self.share(max(options.tasks, options.final_tasks))
            if options.final_tasks < options.tasks:
                raise InputError(
                    f'--final_tasks {options.final_tasks}: expected at least --tasks, '
                    f'{options.tasks}'
                )
        trials, further = self.search()
        ranked = _ranked(trials)
        if not ranked:
            return None
        extra = f' ({further} beyond an edge of the grid)' if further else ''
        of_size = f', |M| = {options.buffer_size}' if _has_buffer(self.model) else ''
        by = (
            f'tuned with {len(ranked)} trials{extra} on held-out training samples of '
            f'{options.tasks} tasks{of_size}: {ranked[0].accuracy:.1f} %; with the values of the '
            f'first trial {trials[0].accuracy:.1f} %'
        )
        chosen = ranked[0]
        finalists = ranked[: options.finalists]
        if len(finalists) > 1:
            means = [
                np.mean(
                    [self.run(t.values, options.final_tasks, order).accuracy for order in _ORDERS]
                )
                for t in finalists
            ]
            chosen = finalists[np.argmax(means)]
            by += (
                f'; the best of {len(finalists)} finalists on {options.final_tasks} tasks in '
                f'{len(_ORDERS)} orders of classes: {max(means):.1f} %'
            )
        if chosen is not ranked[0]:
            by += f'; on {options.tasks} tasks it has {chosen.accuracy:.1f} %'
        edges = beyond(self.space, chosen.values, trials)
        if edges:
            by += f'; at an edge of what was tried: {", ".join(edges)}'
        return {'when': self.condition(), 'set': chosen.values, 'by': by}

    def condition(self) -> dict:
        """Values of flags for which the rule holds."""
        conditions = dict(self.conditions)
        usual = getattr(self.stream(), 'DEFAULT_SPLITS', None)
        if self.model == 'joint' or conditions.get('n_splits') == str(usual):
            conditions.pop('n_splits', None)  # values for the usual number of tasks serve others
        return {
            'weights': self.options.weights,
            'dataset': normalise(self.options.dataset),
            **{name: int(text) if text.isdecimal() else text for name, text in conditions.items()},
        }

    def stream(self, order: int = _ORDERS[0]):
        """The stream of trials in an order of classes."""
        from datasets import get_dataset

        (first,) = plan(self.model, 1, self.space)
        words = self._words(1, first, self.options.tasks, order)
        return get_dataset(cli.parse_args(flag_words(**words)))

    def share(self, tasks: int) -> float:
        """Share of the classes that the first tasks have."""
        stream = self.stream()
        if tasks > stream.N_TASKS:
            flag = 'tasks' if tasks == self.options.tasks else 'final_tasks'
            raise InputError(
                f'--{flag} {tasks}: this stream has {stream.N_TASKS} tasks; use at '
                f'most {stream.N_TASKS}'
            )
        return sum(len(stream.task_classes(t)) for t in range(tasks)) / stream.N_CLASSES

    def samples(self, tasks: int, order: int = _ORDERS[0]) -> tuple[list, int]:
        """(training samples of each part of the first tasks that is cut into batches, held-out)."""
        stream = copy.copy(self.stream(order))
        parts = []
        held_out = 0
        stream.test_loaders = []
        for _ in range(tasks):
            loader, test = stream.get_data_loaders()
            ends = getattr(loader, 'segment_ends', None)
            parts += [len(loader.dataset)] if ends is None else np.diff(ends, prepend=0).tolist()
            held_out += len(test.dataset)
        return [sum(parts)] if self.model == 'joint' else parts, held_out


def _ranked(trials: list) -> list:
    """Trials that are not void, the best first."""
    return sorted((t for t in trials if not t.is_void), key=lambda t: -t.accuracy)


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
    head = ''
    content = {}
    if path.is_file():
        head = re.match('(#.*\n)*', path.read_text(encoding='utf-8'))[0]
        content = read_yaml(path)
    rules = [
        rule
        for rule in content.get('best') or []
        if rule['when'] | {'buffer_size': 0} != tuned['when'] | {'buffer_size': 0}
    ]
    rules.append(tuned)
    rules.sort(key=lambda rule: len(rule['when']) if 'weights' in rule['when'] else 0)
    content['best'] = rules
    text = head + yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=150)
    write_text(path, text)


def main():
    options, flags = parse_options()
    for model in options.models:
        tuning = Tuning(model, options, flags)
        rule = tuning.tune()
        if rule is None:
            print(f'{model}: no rule, since all trials are void: {tuning.path}', flush=True)
            continue
        path = CONFIG / f'{model.replace("-", "_")}.yaml'
        with alone(path):  # other data sets may be tuned side by side
            write_rule(path, rule)
        print(f'{path}: {rule["set"]}, {rule["by"]}', flush=True)
