"""Tune methods on held-out *training* data, as many trials for each; the values go to `models/config/`.

    python scripts/tune.py --dataset seq-cifar100 --weights small --models er-ace ssil scroll --num_threads 1

A trial is a run of main.py on the first `--tasks` tasks, which learns no sample whose key (a digest of the
pixels) is divisible by ten, the same samples whatever the seed or the schedule, and is judged by its accuracy
on those. The test set chooses nothing. The buffer of a trial is |M| times the share of the classes that it
sees, so that a class has as many exemplars as at the end of the whole stream.

`SPACES` has what is tried: of each flag some values, the paper's (else Mammoth's) first. The first trial
takes the first of each; the others are points of the grid drawn once and for all, without repetition. Rows go
to `<out>/<dataset>/<model>.csv`; trials that have a row are not run again, so a killed tuning goes on where
it was, and several methods can be tuned at a time. Flags of main.py behind the script's own are those of
every trial (`--n_splits`, `--num_threads`, `--device`, ...); a value of `SPACES` that is given so is not
tuned, and goes into the rule as it is. `--input_size`, `--passes` and `--predictor` become conditions of the
rule.
"""
import contextlib
import csv
import functools
import io
import itertools
import shlex
import time
from pathlib import Path

import yaml

from bench.cli import parsing as cli
from bench.run.building import initialize
from core.arguments import ArgumentParser, whole
from core.configs import read_yaml
from core.loss_watch import Diverged
from core.plugins import ROOT, normalise
from core.rows import read_rows
from scroll.adaptation import Adaptation
from scroll.archive import atomic_write
from scroll.errors import InputError
from scroll.randomness import numpy_stream

CONFIG = ROOT / 'models' / 'config'
_STEPS = dict(lr=(.01, .001, .003, .02, .03, .05, .1, .2), batch_size=(32, 10))
_ONLINE = _STEPS | dict(batch_iterations=(1, 2))
_MOST = 10 ** 9                                 # above any buffer
_PASSES = 5                                     # over each task, of offline methods
SPACES = {
    'er': _STEPS,
    'der': _STEPS | dict(alpha=(.5, .1, .3, 1.)),
    'derpp': _STEPS | dict(alpha=(.5, .1, .3, 1.), beta=(.5, 1.)),
    'bic': _STEPS,
    'agem': _STEPS,
    'gem': _STEPS | dict(gamma=(.5, 0., 1.)),
    'icarl': _STEPS | dict(opt_wd=(1e-5, 0.)),
    'lwf': _STEPS | dict(alpha=(1., 3.), optim_wd=(0., 5e-4)),
    'ewc-on': _STEPS | dict(e_lambda=(10., 1., 100.)),
    'er-ace': _ONLINE,
    'er-aml': _ONLINE | dict(supcon_temperature=(.2, .1)),
    'ssil': _ONLINE,
    'mir': _ONLINE | dict(subsample=(50, 100)),
    'ens': dict(lr=(1e-4, 1e-5, 3e-5, 3e-4, 1e-3, 3e-3), batch_size=(60, 10), batch_iterations=(1, 2),
                top_k=(32, 8, 128), keys=('normal', 'data')),
    'gdumb': dict(maxlr=(.05, .01, .03, .1), fitting_epochs=(20, 10, 50), fitting_batch_size=(16, 10, 32),
                  cutmix_alpha=(0., 1.)),
    'scroll': dict(ridge_lambda=(.001, .03, .3, 3.), adapt_lr=(.002, .001, .01, .02, .05, .1),
                   classifier_lr=(.5, .1, .01, .001), calibrate_scale=(0, 1), scale=(1., 2., 4., 5.),
                   minibatch_size=(50, 100), iterations=(300, 100), adapt_select=('none', 'folds'),
                   adaptation=('auto',))}
_AT_THE_END = dict(gdumb='--fit_every_task', scroll='--adapt_every_task')      # takes a number of tasks


def parse_options(words=None) -> tuple:
    """(the script's own options, the flags of main.py)."""
    parser = ArgumentParser(prog='tune.py', description=__doc__)
    flag = parser.add_argument
    flag('--dataset', required=True)
    flag('--models', nargs='+', type=normalise, default=list(SPACES), choices=list(SPACES), metavar='MODEL',
         help=f"of {', '.join(SPACES)}")
    flag('--weights', default='compact')
    flag('--input_size', type=whole(1), help='pixels, where they are not those of the weights')
    flag('--buffer_sizes', type=whole(1), nargs='+', default=[500],
         help='each is tuned; the values of one serve from above the next smaller one up to it, of the '
              'largest beyond')
    flag('--above', type=whole(1), default=0,
         help='the values serve buffers with more samples than these alone; rules for smaller ones stay')
    flag('--trials', type=whole(1), default=16, help='of each method and buffer size')
    flag('--tasks', type=whole(1), default=2, help='first tasks of the stream that a trial learns')
    flag('--passes', type=whole(1), help='over each task, of offline methods; the values serve so many alone '
                                         f'(default: {_PASSES}, for any number)')
    flag('--predictor', help='of scroll; the values serve it alone (default: ridge, and the values serve '
                             'any that has none of its own)')
    flag('--base_path', default='./data/')
    flag('--out', default='results/tuning', help='folder of the rows of trials')
    options, flags = parser.parse_known_args(words)
    if options.above >= min(options.buffer_sizes):
        raise InputError(f'--above {options.above}: expected fewer samples than --buffer_sizes '
                         f'{min(options.buffer_sizes)}')
    if options.predictor and options.models != ['scroll']:
        raise InputError(f'--predictor {options.predictor}: scroll alone has one; give --models scroll')
    return options, flags


def space_of(model: str, passes: int = None) -> dict:
    """What is tried of a method: flag -> values. One pass is tried as those of online methods are."""
    return (_ONLINE if passes == 1 and 'lr' in SPACES[model] else {}) | SPACES[model]


def plan(model: str, trials: int, fixed: dict = None, passes: int = None) -> list:
    """Flags of each trial of a method: the first values of all; then other points of the grid, at random.

    fixed: values, as text, of flags of the grid that are not tuned.
    """
    space = space_of(model, passes)
    space |= {name: (_as(space[name][0], name, text),) for name, text in (fixed or {}).items()}
    points = (dict(zip(space, values)) for values in itertools.product(*space.values()))
    any_scale = space.get('scale', (None,))[0]              # one that is calibrated begins anywhere
    first, *others = (values for values in points
                      if not values.get('calibrate_scale') or values.get('scale') == any_scale)
    chosen = numpy_stream(0, f'tuning {model}').permutation(len(others))[:trials - 1]
    return [first, *(others[i] for i in chosen)]


def _as(example, name: str, text: str):
    try:
        return type(example)(text)
    except ValueError:
        raise InputError(f'--{name} {text}: expected a value like {example}') from None


class Trials:
    """The trials of one method on one data set, each a row on disk as soon as it is known."""

    def __init__(self, path: Path):
        self.path = path
        self.rows = read_rows(path) if path.is_file() else []

    def find(self, **what) -> dict:
        """The row of a trial, or None."""
        return next((row for row in self.rows if all(row.get(k) == str(v) for k, v in what.items())), None)

    def add(self, **row) -> dict:
        """Keep a row; returns it as it will be read."""
        self.rows.append({name: str(value) for name, value in row.items()})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = io.StringIO()
        writer = csv.DictWriter(text, list(dict.fromkeys(k for r in self.rows for k in r)), restval='')
        writer.writeheader()
        writer.writerows(self.rows)
        with atomic_write(self.path) as file:
            file.write(text.getvalue().encode())
        return self.rows[-1]


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
        self.model, self.options, self.online = model, options, get_model_class(model).ONLINE
        self.fixed = {name: value for name, value in given.items() if name in space_of(model, options.passes)}
        self.flags = [word for flag, value in zip(flags[::2], flags[1::2])
                      if flag.lstrip('-') not in self.fixed for word in (flag, value)]
        self.psi = '' if options.weights == 'none' else weights.load(options.weights, tensors=False).digest
        self.trials = Trials(Path(options.out) / options.dataset / f'{model}.csv')

    def plan(self, trials: int) -> list:
        """`plan` of this method."""
        return plan(self.model, trials, self.fixed, self.options.passes)

    def words(self, size: int, values: dict) -> list:
        """Of a trial, for main.py."""
        own = [word for name, value in values.items() for word in (f'--{name}', str(value))]
        options = self.options
        passes = [] if self.online else ['--n_epochs', str(options.passes or _PASSES)]
        shared = ['--model', self.model, '--dataset', options.dataset, '--weights', options.weights,
                  '--base_path', options.base_path, '--model_config', 'default', '--non_verbose', '1',
                  '--disable_log', '1', '--validation', '10', '--validation_by',
                  'key', '--stop_after', str(options.tasks)]
        if self.model in _AT_THE_END:
            shared += [_AT_THE_END[self.model], str(options.tasks)]
        if options.input_size:
            shared += ['--input_size', str(options.input_size)]
        if options.predictor:
            shared += ['--predictor', options.predictor]
        buffered = ['--buffer_size', str(size)] if _has_buffer(self.model) else []
        return [*shared, *buffered, *passes, *own, *self.flags]

    def tune(self, size: int, above: int) -> dict:
        """The rule of the best trial with a buffer of `size` samples, which is for those above `above`."""
        planned, found = self.plan(self.options.trials), []
        of_size = f', |M| = {size}' if _has_buffer(self.model) else ''
        for number, values in enumerate(planned):
            words = self.words(max(1, round(size * self.share)), values | self.threshold())
            known = dict(psi=self.psi[:16], command=_shown(words))
            row = self.trials.find(**known)
            if row is None:
                began = time.process_time()
                accuracy = accuracy_of(words)
                row = self.trials.add(**known, buffer_size=size, accuracy=accuracy, **values,
                                      seconds=round(time.process_time() - began, 1))
                print(f'{self.model}{of_size}, trial {number + 1} of {len(planned)}: '
                      f"{', '.join(f'{k} {v}' for k, v in values.items())}: {accuracy:.2f} %", flush=True)
            found.append(float(row['accuracy']))
        best = max(range(len(found)), key=found.__getitem__)
        when = dict(weights=self.options.weights, dataset=normalise(self.options.dataset))
        if self.options.input_size:
            when |= dict(input_size=self.options.input_size)
        if self.options.passes and not self.online:
            when |= dict(n_epochs=self.options.passes)
        if self.options.predictor:
            when |= dict(predictor=self.options.predictor)
        sizes = sorted(self.options.buffer_sizes)
        if (len(sizes) > 1 or self.options.above) and _has_buffer(self.model):
            when |= dict(buffer_size=dict(min=above and above + 1, max=_MOST if size == sizes[-1] else size))
        by = (f'tuned with {len(found)} trials on held-out training samples of {self.options.tasks} tasks'
              f'{of_size}: {found[best]:.1f} %; with the values of the first trial {found[0]:.1f} %')
        return dict(when=when, set=planned[best], by=by)

    def threshold(self) -> dict:
        """SCROLL tunes all of the network where the whole buffer, and not that of a trial, is large."""
        if self.model != 'scroll' or '--adaptation_threshold' in self.flags:
            return {}
        return dict(adaptation_threshold=max(1, round(Adaptation.threshold * self.share)))

    @functools.cached_property
    def share(self) -> float:
        """Of the classes, those that a trial sees."""
        from datasets import get_dataset
        dataset = get_dataset(cli.parse_args(self.words(1, self.plan(1)[0])))
        if self.options.tasks > dataset.N_TASKS:
            raise InputError(f'--tasks {self.options.tasks}: this stream has {dataset.N_TASKS} tasks; use at '
                             f'most {dataset.N_TASKS}')
        classes = sum(len(dataset.task_classes(t)) for t in range(self.options.tasks))
        return classes / dataset.N_CLASSES


def _has_buffer(model: str) -> bool:
    return model not in ('lwf', 'ewc-on', 'ens')


def _shown(words: list) -> str:
    """The command of a trial, without what is of this machine or of the script."""
    left_out = {'--base_path', '--non_verbose', '--disable_log', '--device',
                '--num_threads'}
    return shlex.join(word for name, value in zip(words[::2], words[1::2]) if name not in left_out
                      for word in (name, value))


def write_rules(path: Path, rules: list, above: int = 0) -> None:
    """Put the tuned rules of a backbone and data set into a config file in place of older ones, behind all
    others; what is said at its head stays.

    above: older ones stay for buffers with up to so many samples.
    """
    text = path.read_text(encoding='utf-8') if path.is_file() else ''
    head = ''.join(itertools.takewhile(lambda line: line.startswith('#'), text.splitlines(keepends=True)))
    content = read_yaml(path) if text else {}
    before, replaced = content.get('best') or [], _tuned_for(rules[0])
    others = [rule for rule in before if _tuned_for(rule) != replaced]
    for rule in before if above else ():
        if _tuned_for(rule) == replaced:
            sizes = dict(min=0, max=_MOST) | rule['when'].get('buffer_size', {})
            if sizes['min'] <= above:
                sizes['max'] = min(sizes['max'], above)
                others.append(rule | dict(when=rule['when'] | dict(buffer_size=sizes)))
    content['best'] = [rule for rule in others if 'weights' not in rule['when']] + sorted(
        [rule for rule in others if 'weights' in rule['when']] + rules,
        key=lambda rule: (*_tuned_for(rule), rule['when'].get('buffer_size', {}).get('min', -1)))
    with atomic_write(path) as file:
        file.write((head + yaml.safe_dump(content, sort_keys=False, default_flow_style=None,
                                          width=150)).encode())


def _tuned_for(rule: dict) -> tuple:
    usual = dict(weights='', dataset='', input_size=0, n_epochs=0, predictor='')
    return tuple(str(rule['when'].get(name, value)) for name, value in usual.items())


def main():
    options, flags = parse_options()
    if len(flags) % 2:
        raise InputError(f"{' '.join(flags)}: expected flags of main.py with one value each")
    for model in options.models:
        tuning, rules, above = Tuning(model, options, flags), [], options.above
        for size in sorted(options.buffer_sizes) if _has_buffer(model) else options.buffer_sizes[:1]:
            rules.append(tuning.tune(size, above))
            above = size
        path = CONFIG / f"{model.replace('-', '_')}.yaml"
        write_rules(path, rules, options.above if _has_buffer(model) else 0)
        print(f"{path}: {'; '.join(str(rule['set']) for rule in rules)}", flush=True)
