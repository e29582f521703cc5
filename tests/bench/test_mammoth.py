"""`scripts/mammoth.py` on a small made-up checkout."""

import sys
from argparse import Namespace

import pytest

from bench.resume import checkpoints
from core.mammoth import use_checkout
from core.rows import read_rows
from models import get_model
from scripts import mammoth
from tests.conftest import refused, words_of, written

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
FINE = """
from models.utils.continual_model import ContinualModel
class Fine(ContinualModel):
    NAME = 'fine'
    COMPATIBILITY = ['class-il']
    @staticmethod
    def get_parser(parser):
        parser.add_argument('--alpha', type=float, required=True)
        return parser
    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        return 0
"""
FILES = {
    'main.py': MAIN,
    'models/odd.py': MODEL,
    'backbone/__init__.py': '',
    'utils/__init__.py': '',
    'datasets/__init__.py': '',
    'models/sgd.py': MODEL.replace('import no_such_package', '').replace("'odd'", "'sgd'"),
    'models/fine.py': FINE,
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


def plain(root) -> tuple:
    """(arguments, method) of `PLAIN`, of this checkout."""
    use_checkout(root)
    args = Namespace(model='mammoth:plain', dataset='mammoth:seq-cifar10', n_epochs=5)
    return args, get_model(args, None, None, None, None)


@pytest.fixture
def call(root, monkeypatch, tmp_path):
    """call(action, *words): run the script on the checkout; rows go to `tmp_path`."""

    def run(action, *words):
        words = words_of('mammoth.py', action, root, '--out', tmp_path, *words)
        monkeypatch.setattr(sys, 'argv', words)
        mammoth.main()

    return run


@pytest.mark.slow
def test_models_run_or_lack_a_package_and_are_not_run_twice(call, tmp_path, monkeypatch):
    words = '--dataset seq-digits --models odd fine -- --weights none --backbone reduced-resnet18'
    call('verdicts', words)
    fine, odd = read_rows(tmp_path / 'verdicts.csv')
    assert fine == {'kind': 'model', 'name': 'fine', 'verdict': 'runs', 'reason': ''}
    assert (odd['name'], odd['verdict']) == ('odd', 'needs a package')
    assert 'no_such_package' in odd['reason']
    monkeypatch.setattr(mammoth, 'verdict_of', None)
    call('verdicts', words)


def test_what_was_made_otherwise_is_kept_and_not_mixed(call, root, tmp_path):
    (tmp_path / 'compare.csv').write_text(
        'model,seed,where,accuracy,flags,seconds\ner,0,here,1,--lr 2,1\n'
    )
    with refused('other flags (--lr 2): give another --out'):
        call('compare', '--models er --seeds 1 -- --lr 1')
    with refused('--models'):
        call('compare')


def test_a_repository_that_cannot_be_fetched_is_one_line(call, tmp_path):
    wanted = written(tmp_path / 'list', {'forks.yaml': 'no/such/place: {commit: x, models: {}}'})
    with refused('git clone'):
        call('forks', '--list', wanted / 'forks.yaml')


def test_code_of_the_checkout_is_part_of_what_a_run_is(root):
    plain(root)
    before = checkpoints.code_digests(), checkpoints.project_digest()
    (root / 'models' / 'plain.py').write_text(f'{PLAIN}\n')
    now = checkpoints.code_digests(), checkpoints.project_digest()
    assert [name for name in now[0] if now[0][name] != before[0].get(name)] == [
        'mammoth:models/plain.py'
    ]
    assert now[1] != before[1]


@pytest.mark.slow
def test_runs_here_and_there_are_rows_with_the_flags_that_each_takes(
    call, root, tmp_path, monkeypatch
):
    monkeypatch.setattr(mammoth, 'ROOT', root)
    call('compare', '--models er --seeds 1 -- --lr 1 -- --ours 2')
    rows = read_rows(tmp_path / 'compare.csv')
    assert [(row['seed'], row['where'], row['accuracy']) for row in rows] == [
        ('0', where, '12.5') for where in ('here', 'there')
    ]
    assert all(row['flags'] == '--lr 1 --ours 2' for row in rows)


def test_a_method_of_the_checkout_sees_plain_names_and_has_networks_of_the_checkout(root):
    args, method = plain(root)
    assert (method.args.model, method.args.dataset, method.net.whose) == (
        'plain',
        'seq-cifar10',
        'theirs',
    )
    assert (args.model, args.dataset, args.n_epochs) == ('mammoth:plain', 'mammoth:seq-cifar10', 1)
