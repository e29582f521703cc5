"""Tune methods on held-out *training* data, the same number of trials for each, for `models/config/`.

    python scripts/tune.py --dataset seq-cifar100 --weights small --models er-ace ssil scroll --num_threads 1

A trial is a run of main.py on the first `--tasks` tasks without the samples whose key (digest of the pixels)
is divisible by ten, and is judged by its accuracy on those. Rows go to `<out>/<dataset>/<model>.csv`; the
same command resumes a killed tuning. Flags of main.py go behind the script's own (docs/tuning.md).
"""
import contextlib
import copy
import functools
import io
import itertools
import shlex
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
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
_STEPS = dict(lr=(.01, .001, .003, .02, .03, .05, .1, .2), batch_size=(32, 10), bn=('train', 'frozen'))
_ONLINE = _STEPS | dict(batch_iterations=(1, 2))
_MOST = 10 ** 9                                 # above any buffer
_PASSES = '5'                                   # over each task, of offline methods
_CONDITIONS = 'input_size', 'predictor', 'n_epochs'     # flags that a rule names, where they are given
_FEWEST = 4                                     # samples of a batch: fewer make batch norms diverge
_ALPHA = (.5, .1, .3, 1., 3., 10., 30.)
SPACES = {
    **dict.fromkeys(('er', 'bic', 'joint', 'agem'), _STEPS), **dict.fromkeys(('er-ace', 'ssil'), _ONLINE),
    'der': _STEPS | dict(alpha=_ALPHA),
    'derpp': _STEPS | dict(alpha=_ALPHA, beta=(.5, 1.)),
    'gem': _STEPS | dict(gamma=(.5, 0., 1.)),
    'icarl': _STEPS | dict(opt_wd=(1e-5, 0.)),
    'lwf': _STEPS | dict(alpha=(1., 3.), optim_wd=(0., 5e-4)),
    'ewc-on': _STEPS | dict(e_lambda=(10., 1., 100.)),
    'er-aml': _ONLINE | dict(supcon_temperature=(.2, .1)),
    'mir': _ONLINE | dict(subsample=(50, 100)),
    'ens': dict(lr=(1e-4, 1e-5, 3e-5, 3e-4, 1e-3, 3e-3), batch_size=(60, 10), batch_iterations=(1, 2),
                top_k=(32, 8, 128), keys=('normal', 'data')),
    'gdumb': dict(maxlr=(.05, .01, .03, .1), fitting_epochs=(20, 10, 50), fitting_batch_size=(16, 10, 32),
                  cutmix_alpha=(0., 1.), bn=('train', 'frozen')),
    'scroll': dict(ridge_lambda=(.001, .01, .03, .1, .3, 3.), adapt_lr=(.002, .001, .01, .02, .05, .1),
                   classifier_lr=(.5, .1, .01, .001), calibrate_scale=(0, 1), scale=(1., 2., 4., 5.),
                   minibatch_size=(50, 100), iterations=(300, 100), adapt_select=('none', 'folds'),
                   adaptation=('auto',))}
_AT_THE_END = dict(gdumb='fit_every_task', joint='fit_every_task', scroll='adapt_every_task')


def parse_options(words=None) -> tuple:
    """(the script's own options, the flags of main.py)."""
    parser = ArgumentParser(prog='tune.py', description=__doc__)
    flag = parser.add_argument
    flag('--dataset', required=True, help='one that main.py --help names')
    flag('--models', nargs='+', type=normalise, default=list(SPACES), choices=list(SPACES), metavar='MODEL',
         help=f"of {', '.join(SPACES)}")
    flag('--weights', default='compact')
    flag('--buffer_sizes', '--buffer_size', type=whole(1), nargs='+', default=[500],
         help='each is tuned; the values of one serve from above the next smaller one up to it, of the '
              'largest beyond')
    flag('--trials', type=whole(1), default=16, help='of each method and buffer size')
    flag('--tasks', type=whole(1), default=2, help='first tasks of the stream that a trial learns')
    flag('--finalists', type=whole(1), default=1,
         help='best trials that are run again on --final_tasks (1: none)')
    flag('--final_tasks', type=whole(1), default=5, help='first tasks of the stream that finalists learn')
    flag('--base_path', default='./data/')
    flag('--out', default='results/tuning', help='folder of the rows of trials')
    options, flags = parser.parse_known_args(words)
    if len(flags) % 2:
        raise InputError(f"{' '.join(flags)}: expected flags of main.py with one value each")
    return options, flags


def space_of(model: str, one_pass: bool = False) -> dict:
    """What is tried of a method: flag -> values. One pass is tried as those of online methods are."""
    online = one_pass and 'lr' in SPACES[model] and model != 'joint'
    return (_ONLINE if online else {}) | SPACES[model]


def plan(model: str, trials: int, space: dict = None, fixed: dict = {}) -> list:    # noqa: B006  not changed
    """Flags of each trial of a method: the first values of all; then random points of the grid, those whose
    values were tried least often first. fixed: values, as text, of flags of the grid that are not tuned."""
    space = dict(space or SPACES[model])
    for name, text in fixed.items():
        try:
            space[name] = (type(space[name][0])(text),)
        except ValueError:
            raise InputError(f'--{name} {text}: expected a value like {space[name][0]}') from None
    points = (dict(zip(space, values)) for values in itertools.product(*space.values()))
    any_scale = space.get('scale', (None,))[0]              # one that is calibrated begins anywhere
    first, *others = (values for values in points
                      if not values.get('calibrate_scale') or values.get('scale') == any_scale)
    others = [others[i] for i in numpy_stream(0, f'tuning {model}').permutation(len(others))]
    chosen, tried = [first], Counter(first.items())
    for _ in range(min(trials - 1, len(others))):
        least = min(others, key=lambda values: sum(len(space[item[0]]) * tried[item]
                                                   for item in values.items()))
        others.remove(least)
        chosen.append(least)
        tried.update(least.items())
    return chosen


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
        online = get_model_class(model).ONLINE                  # one pass, whatever --n_epochs says
        passes = '' if online else given.get('n_epochs', _PASSES)
        self.model, self.options = model, options
        self.passes, self.space = dict(n_epochs=passes) if passes else {}, space_of(model, passes == '1')
        self.conditions = {name: given[name] for name in _CONDITIONS
                           if name in given and not (online and name == 'n_epochs')}
        self.fixed = {name: value for name, value in given.items() if name in self.space}
        self.flags = [word for name, value in given.items() if name not in {*self.fixed, *_CONDITIONS}
                      for word in (f'--{name}', value)]
        self.psi = '' if options.weights == 'none' else weights.load(options.weights, tensors=False).digest
        self.path = Path(options.out) / options.dataset / f'{model}.csv'
        self.rows = read_rows(self.path) if self.path.is_file() else []

    def words(self, size: int, values: dict, tasks: int) -> list:
        """The command of a trial on the first tasks. size: of the buffer at the end of the whole stream."""
        size = max(1, round(size * self.share(tasks)))
        size -= _too_few(size, values.get('fitting_batch_size'))
        given, more = {*values, *(flag.lstrip('-') for flag in self.flags[::2])}, []
        if self.model == 'scroll' and 'adaptation_threshold' not in given:
            # the whole buffer, and not that of a trial, decides whether all of the network is tuned
            more = ['--adaptation_threshold', str(max(1, round(Adaptation.threshold * self.share(tasks))))]
        batch = values.get('batch_size')
        if 'drop_last' not in given and any(_too_few(n, batch) for n in self.samples(tasks)):
            more = ['--drop_last', '1']
        return [*self._words(size, values, tasks), *more]

    def _words(self, size: int, values: dict, tasks: int) -> list:
        options = self.options
        words = dict(model=self.model, dataset=options.dataset, weights=options.weights,
                     base_path=options.base_path, results_path='trials', model_config='default',
                     non_verbose=1, validation=10, validation_by='key', stop_after=tasks)
        if '--resume' not in self.flags:
            words['resume'] = 'always'                          # also if the code has changed since
        if self.model in _AT_THE_END:
            words[_AT_THE_END[self.model]] = tasks
        words |= self.conditions | (dict(buffer_size=size) if _has_buffer(self.model) else {})
        words |= self.passes
        return [word for name, value in (words | values).items()
                for word in (f'--{name}', str(value))] + self.flags

    def run(self, size: int, values: dict, tasks: int, title: str) -> float:
        """Accuracy of a trial, in percent: from its row, or of a run whose row is then written."""
        words = self.words(size, values, tasks)
        known = dict(psi=self.psi[:16], command=_shown(words))
        for row in self.rows:
            if known.items() <= row.items():
                return float(row['accuracy'])
        began = time.process_time()
        accuracy = accuracy_of(words)
        row = known | dict(buffer_size=size, accuracy=accuracy, **values,
                           seconds=round(time.process_time() - began, 1))
        self.rows.append({name: str(value) for name, value in row.items()})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.path) as file:                   # each trial as soon as it is known
            pd.DataFrame(self.rows).to_csv(file, index=False)
        tried = ', '.join(f'{name} {value}' for name, value in values.items())
        print(f'{title}: {tried}: {accuracy:.2f} %', flush=True)
        return accuracy

    def tune(self, size: int, above: int) -> dict:
        """The rule of the best trial with a buffer of `size` samples, which is for those above `above`."""
        options = self.options
        if options.finalists > 1:
            self.share(options.final_tasks)                     # refused before the first trial
        planned = plan(self.model, options.trials, self.space, self.fixed)
        of_size = f', |M| = {size}' if _has_buffer(self.model) else ''
        title = f'{self.model}{of_size}, trial'
        found = [self.run(size, values, options.tasks, f'{title} {i + 1} of {len(planned)}')
                 for i, values in enumerate(planned)]
        ranked = sorted(range(len(found)), key=lambda i: -found[i])[:options.finalists]
        best, again = ranked[0], ''
        if len(ranked) > 1:
            tasks = options.final_tasks
            final = {i: self.run(size, planned[i], tasks, f'{title} {i + 1} on {tasks} tasks')
                     for i in ranked}
            best = max(ranked, key=final.get)
            again = f'; the best of {len(ranked)} finalists on {tasks} tasks: {final[best]:.1f} %'
        when = dict(weights=options.weights, dataset=normalise(options.dataset)) | {
            name: int(text) if text.isdecimal() else text for name, text in self.conditions.items()}
        sizes = sorted(options.buffer_sizes)
        if len(sizes) > 1 and _has_buffer(self.model):
            when |= dict(buffer_size=dict(min=above and above + 1, max=_MOST if size == sizes[-1] else size))
        by = (f'tuned with {len(found)} trials on held-out training samples of {options.tasks} tasks'
              f'{of_size}: {found[best]:.1f} %; with the values of the first trial {found[0]:.1f} %{again}')
        return dict(when=when, set=planned[best], by=by)

    @functools.cached_property
    def dataset(self):
        """The stream of every trial."""
        from datasets import get_dataset
        first = plan(self.model, 1, self.space, self.fixed)[0]
        return get_dataset(cli.parse_args(self._words(1, first, self.options.tasks)))

    def share(self, tasks: int) -> float:
        """Of the classes, those of the first tasks."""
        of_stream = self.dataset.N_TASKS
        if tasks > of_stream:
            flag = 'tasks' if tasks == self.options.tasks else 'final_tasks'
            raise InputError(f'--{flag} {tasks}: this stream has {of_stream} tasks; use at most {of_stream}')
        return sum(len(self.dataset.task_classes(t)) for t in range(tasks)) / self.dataset.N_CLASSES

    @functools.cache                                                                        # noqa: B019
    def samples(self, tasks: int) -> list:
        """Training samples of each part of the first tasks that is cut into batches."""
        stream, found = copy.copy(self.dataset), []
        stream.test_loaders = []
        for _ in range(tasks):
            loader, _ = stream.get_data_loaders()
            ends = getattr(loader, 'segment_ends', None)
            found += [len(loader.dataset)] if ends is None else np.diff(ends, prepend=0).tolist()
        return [sum(found)] if self.model == 'joint' else found


def _too_few(samples: int, batch_size) -> int:
    """Samples of the last batch, where they are fewer than `_FEWEST`."""
    last = samples % batch_size if batch_size and samples > batch_size else 0
    return last if last < _FEWEST else 0


def _has_buffer(model: str) -> bool:
    return model not in ('lwf', 'ewc-on', 'ens', 'joint')


def _shown(words: list) -> str:
    """The command of a trial, without what is of this machine or of the script."""
    left_out = {'--base_path', '--results_path', '--non_verbose', '--device', '--num_threads',
                '--checkpoint_every', '--resume'}
    return shlex.join(word for name, value in zip(words[::2], words[1::2]) if name not in left_out
                      for word in (name, value))


def write_rules(path: Path, rules: list) -> None:
    """Put the tuned rules of a backbone and data set into a config file in place of older ones, behind all
    others; the comment at its head stays."""
    text = path.read_text(encoding='utf-8') if path.is_file() else ''
    head = ''.join(itertools.takewhile(lambda line: line.startswith('#'), text.splitlines(keepends=True)))
    content = read_yaml(path) if text else {}
    others = [rule for rule in content.get('best') or [] if _tuned_for(rule) != _tuned_for(rules[0])]
    content['best'] = [rule for rule in others if 'weights' not in rule['when']] + sorted(
        [rule for rule in others if 'weights' in rule['when']] + rules,
        key=lambda rule: (*_tuned_for(rule), size.get('min', -1) if isinstance(
            size := rule['when'].get('buffer_size', -1), dict) else size))
    with atomic_write(path) as file:
        file.write((head + yaml.safe_dump(content, sort_keys=False, default_flow_style=None,
                                          width=150)).encode())


def _tuned_for(rule: dict) -> tuple:
    usual = dict(weights='', dataset='', input_size=0, n_epochs=0, predictor='')
    return tuple(str(rule['when'].get(name, value)) for name, value in usual.items())


def main():
    options, flags = parse_options()
    for model in options.models:
        tuning, rules, above = Tuning(model, options, flags), [], 0
        for size in sorted(options.buffer_sizes) if _has_buffer(model) else options.buffer_sizes[:1]:
            rules.append(tuning.tune(size, above))
            above = size
        path = CONFIG / f"{model.replace('-', '_')}.yaml"
        write_rules(path, rules)
        print(f"{path}: {'; '.join(str(rule['set']) for rule in rules)}", flush=True)
