"""Tune SCROLL for one backbone on held-out *training* data; the values go to `models/config/scroll.yaml`.

    python scripts/tune.py --dataset seq-cifar100 --buffer_sizes 200 500 2000

A tenth of the training samples, those whose key (a digest of the pixels) is divisible by ten, is kept from
statistics and buffer: the same samples under every schedule. The test set is not looked at. First lambda is
chosen by the accuracy of f_T on the held-out part, then steps and number of updates by that of f*, over
`GRID`. Every trial is a row of `<base_path>/tuning/<dataset>.csv`; trials that have a row are not run again,
so a killed tuning goes on where it was.
"""
import argparse
import csv
from pathlib import Path

import numpy as np
import yaml

from bench.cli import parsing as cli
from bench.run.building import initialize
from core.plugins import ROOT
from core.rows import read_rows
from scroll.adaptation.training import adaptation_path
from scroll.heads import predictors

LAMBDAS = (.001, .003, .01, .03, .1, .3, 1., 3., 10., 30.)
GRID = dict(  # (learning rate of adapters or network, of the classifier), numbers of updates looked at
    adapters=(((.01, .01), (.02, .01), (.05, .01)), (0, 50, 100, 200, 300)),
    full=(((.01, .01), (.03, .01)), (0, 100, 200, 400)))
CONFIG = ROOT / 'models' / 'config' / 'scroll.yaml'


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument('--dataset', required=True)
    parser.add_argument('--buffer_sizes', type=int, nargs='+', default=[200, 500, 2000])
    parser.add_argument('--weights', default='compact')
    parser.add_argument('--base_path', default='./data/')
    parser.add_argument('--held_out', type=int, default=2500, help='held-out samples looked at for f*')
    return parser.parse_args()


def held_out_split(learner, images, labels):
    """Features and keys of all samples, and a mask of the held-out tenth."""
    features, keys = learner.embedder(images)
    learner.embedder.cache.flush()
    return features, keys, keys % 10 == 0


def percent(logits, classes, labels) -> float:
    return 100 * float((classes[logits.argmax(axis=1)] == labels).mean())


class Trials:
    """The trials of one data set, each a row on disk as soon as it is known."""

    def __init__(self, path: Path):
        self.path = path
        self.rows = read_rows(path) if path.is_file() else []

    def find(self, **what):
        return [row for row in self.rows if all(row[k] == str(v) for k, v in what.items())]

    def add(self, **row) -> None:
        self.rows.append({k: str(v) for k, v in row.items()})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, 'w', newline='') as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(k for r in self.rows for k in r)), restval='')
            writer.writeheader()
            writer.writerows(self.rows)
        print(', '.join(f'{k} {v}' for k, v in row.items()), flush=True)


def tune_lambda(learner, features, labels, held, trials, backbone) -> float:
    """The lambda of the best f_T; the largest of those within 0.1 points of it."""
    for alpha in LAMBDAS:
        if not trials.find(psi=backbone, what='lambda', ridge_lambda=alpha):
            f_T = predictors.ridge(learner.statistics_, alpha)
            trials.add(psi=backbone, what='lambda', ridge_lambda=alpha,
                       accuracy=percent(f_T.decision_function(features[held]), f_T.classes, labels[held]))
    found = trials.find(psi=backbone, what='lambda')
    accuracy = {float(r['ridge_lambda']): float(r['accuracy']) for r in found}
    return max(a for a in accuracy if accuracy[a] >= max(accuracy.values()) - 0.1)


def tune_adaptation(learner, images, labels, held, size, trials, backbone) -> dict:
    """Steps and number of updates of the best f* for one buffer size."""
    mode = learner.adaptation.mode_for(size)
    sample = np.flatnonzero(held)
    f_T, exemplars = learner.predictor(), learner.buffer_.content()
    for lr, classifier_lr in GRID[mode][0]:
        known = dict(psi=backbone, what='adaptation', ridge_lambda=learner.ridge_lambda, buffer_size=size,
                     adapt_lr=lr, classifier_lr=classifier_lr)
        stops = [n for n in GRID[mode][1] if not trials.find(**known, iterations=n)]
        settings = type(learner.adaptation)(**{**vars(learner.adaptation), 'lr': lr,
                                               'classifier_lr': classifier_lr})
        path = adaptation_path(learner.embedder, f_T, exemplars, settings, 0, stops,
                               left_out=learner.left_out(exemplars))
        for n, f_star in zip(stops, path):
            trials.add(**known, iterations=n, initial_scale=f_star.initial_scale, final_scale=f_star.scale,
                       accuracy=percent(f_star.decision_function(images[sample]), f_star.classes,
                                        labels[sample]))
    found = trials.find(psi=backbone, what='adaptation', ridge_lambda=learner.ridge_lambda, buffer_size=size)
    best = max(found, key=lambda r: float(r['accuracy']))
    rates = {k: float(best[k]) for k in ('adapt_lr', 'classifier_lr')}
    return rates | dict(iterations=int(best['iterations']))


def write_rules(weights: str, dataset: str, rules: list) -> None:
    """Put the rules of this backbone and data set into the config file in place of older ones."""
    content = yaml.safe_load(CONFIG.read_text()) if CONFIG.is_file() else {}
    others = [r for r in content.get('best') or []
              if (r['when'].get('weights'), r['when'].get('dataset')) != (weights, dataset)]
    content['best'] = sorted(others + rules, key=lambda r: (r['when']['weights'], r['when']['dataset'],
                                                            r['when'].get('buffer_size', {}).get('min', -1)))
    CONFIG.write_text('# Written by scripts/tune.py: values by backbone, data set and buffer size, chosen on '
                      'held-out training data.\n'
                      + yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=150))


def main():
    options = parse_args()
    args = cli.parse_args(['--model', 'scroll', '--dataset', options.dataset, '--weights', options.weights,
                           '--base_path', options.base_path, '--model_config', 'default',
                           '--disable_log', '1'])
    model, dataset, args = initialize(args)
    learner, images, labels = model.learner, dataset.images.train, dataset.images.train_labels
    features, keys, held = held_out_split(learner, images, labels)
    backbone = model.embedder.digest[:16]
    trials = Trials(Path(options.base_path) / 'tuning' / f'{options.dataset}.csv')
    learner.buffer_size = 0
    learner.learn(images[~held], features[~held], keys[~held], labels[~held])
    alpha = tune_lambda(learner, features, labels, held, trials, backbone)
    when = dict(weights=options.weights, dataset=options.dataset)
    rules, below = [dict(when=when, set=dict(ridge_lambda=alpha))], 1
    shown = held & (np.cumsum(held) <= options.held_out)
    for size in sorted(options.buffer_sizes):
        learner.ridge_lambda, learner.buffer_size = alpha, size
        learner.forget().learn(images[~held], features[~held], keys[~held], labels[~held])
        values = tune_adaptation(learner, images, labels, shown, size, trials, backbone)
        top = 10 ** 9 if size == max(options.buffer_sizes) else size
        rules.append(dict(when={**when, 'buffer_size': dict(min=below, max=top)}, set=values))
        below = size + 1
        write_rules(options.weights, options.dataset, rules)
    write_rules(options.weights, options.dataset, rules)
