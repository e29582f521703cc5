"""`scripts/mammoth.py` on a small made-up checkout."""

import sys
from argparse import Namespace

import pytest

from bench import checkout
from bench.resume import checkpoints
from core.mammoth import use_checkout
from core.rows import read_rows
from models import get_model
from scroll.ground.errors import InputError
from tests.conftest import written

MAIN = """
import argparse, sys
def parse_args():
    parser = argparse.ArgumentParser()
    for name in ('model', 'dataset', 'model_config', 'dataset_config'):
        parser.add_argument('--' + name)
    parser.add_argument('--lr', type=float, default=0.25)
    parser.add_argument('--n_epochs', type=int, default=5)
    return parser.parse_args()
if __name__ == '__main__':
    print(sys.argv[1:], file=sys.stderr)
    print('[Class-IL]: 12.5 %')
"""
MODEL = """
import no_such_package
from models.utils.continual_model import ContinualModel
class Odd(ContinualModel):
    NAME = 'odd'
    COMPATIBILITY = ['class-il']
"""
PLAIN = """
from backbone.wide import WideNet
class Plain:
    NAME = 'plain'
    device = 'cpu'
    def __init__(self, backbone, loss, args, transform, dataset=None):
        self.args, self.net = args, WideNet()
        args.n_epochs = 1
    def to(self, device):
        return self
"""
FILES = {
    'main.py': MAIN,
    'models/odd.py': MODEL,
    'backbone/__init__.py': '',
    'utils/__init__.py': '',
    'datasets/__init__.py': '',
    'models/sgd.py': MODEL.replace('import no_such_package', '').replace("'odd'", "'sgd'"),
    'models/plain.py': PLAIN,
    'backbone/ResNetBlock.py': 'class ResNet:\n    whose = "theirs"\n',
    'backbone/wide.py': (
        'from backbone.ResNetBlock import ResNet\nclass WideNet(ResNet):\n    pass\n'
    ),
    'models/config/sgd.yaml': 'seq-digits: {lr: 0.25}\nseq-digits-none: {lr: 0.5}\n',
}


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, 'meta_path', list(sys.meta_path))
    yield written(tmp_path / 'theirs', FILES)
    # another test's checkout has files of these names
    for name, module in list(sys.modules.items()):
        if str(getattr(module, '__file__', None)).startswith(str(tmp_path)):
            del sys.modules[name]


def run(monkeypatch, root, *words):
    monkeypatch.setattr(sys, 'argv', ['mammoth.py', *map(str, words)])
    checkout.main()


def test_a_model_that_lacks_a_package_is_a_row_and_is_not_run_twice(root, tmp_path, monkeypatch):
    words = 'verdicts', root, '--dataset', 'seq-digits', '--models', 'odd', '--out', tmp_path
    run(monkeypatch, root, *words)
    (row,) = read_rows(tmp_path / 'verdicts.csv')
    assert (row['kind'], row['name'], row['verdict']) == (
        'model',
        'odd',
        'needs a package',
    )
    assert 'no_such_package' in row['reason']
    monkeypatch.setattr(checkout, 'verdict_of', None)
    run(monkeypatch, root, *words)


def test_what_was_made_otherwise_is_kept_and_not_mixed(root, tmp_path, monkeypatch):
    """Runs with other flags; configurations, where the checkout's parser ends; code of the checkout
    is part of what a run is.
    """
    (tmp_path / 'compare.csv').write_text(
        'model,seed,where,accuracy,flags,seconds\ner,0,here,1,--lr 2,1\n'
    )
    with pytest.raises(InputError, match=r'other flags .--lr 2.: give another --out'):
        run(
            monkeypatch,
            root,
            'compare',
            root,
            '--models',
            'er',
            '--seeds',
            1,
            '--out',
            tmp_path,
            '--',
            '--lr',
            '1',
        )
    (root / 'main.py').write_text('raise SystemExit')
    (tmp_path / 'configs.csv').write_text('as it was')
    with pytest.raises(InputError, match='parser ended'):
        run(monkeypatch, root, 'configs', root, '--out', tmp_path)
    assert (tmp_path / 'configs.csv').read_text() == 'as it was'
    get_model(
        Namespace(model='mammoth:plain', dataset='mammoth:seq-cifar10', n_epochs=5),
        None,
        None,
        None,
        None,
    )
    before = checkpoints.code_digests(), checkpoints.project_digest()
    (root / 'models' / 'plain.py').write_text(f'{PLAIN}\n')
    now = checkpoints.code_digests(), checkpoints.project_digest()
    assert [name for name in now[0] if now[0][name] != before[0].get(name)] == [
        'mammoth:models/plain.py'
    ]
    assert now[1] != before[1]


@pytest.mark.slow
def test_runs_here_and_there_are_rows_with_the_flags_that_each_takes(root, tmp_path, monkeypatch):
    monkeypatch.setattr(checkout, 'ROOT', root)
    run(
        monkeypatch,
        root,
        'compare',
        root,
        '--models',
        'er',
        '--seeds',
        1,
        '--out',
        tmp_path,
        '--',
        '--lr',
        '1',
        '--',
        '--ours',
        '2',
    )
    rows = read_rows(tmp_path / 'compare.csv')
    assert [(row['seed'], row['where'], row['accuracy']) for row in rows] == [
        ('0', where, '12.5') for where in ('here', 'there')
    ]
    assert all(row['flags'] == '--lr 1 --ours 2' for row in rows)
    with pytest.raises(InputError, match='--models'):
        run(monkeypatch, root, 'compare', root)


def test_a_method_of_the_checkout_sees_plain_names_and_has_networks_of_the_checkout(root):
    use_checkout(root)
    args = Namespace(model='mammoth:plain', dataset='mammoth:seq-cifar10', n_epochs=5)
    method = get_model(args, None, None, None, None)
    assert (method.args.model, method.args.dataset, method.net.whose) == (
        'plain',
        'seq-cifar10',
        'theirs',
    )
    assert (args.model, args.dataset, args.n_epochs) == ('mammoth:plain', 'mammoth:seq-cifar10', 1)
