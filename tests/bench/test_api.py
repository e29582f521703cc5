"""The bench as a library: from keyword arguments to a row."""

import pytest

import bench
import mammoth
import models
from core.rows import read_rows
from tests.conftest import refused

pytestmark = pytest.mark.usefixtures('small_digits')
FIXED = {'non_verbose': True, 'disable_log': True, 'lr': 0.05, 'n_epochs': 1, 'device': 'cpu'}


def test_a_run_from_keyword_arguments_gives_its_row(tmp_path, tiny_weights):
    flags = FIXED | {
        'disable_log': False,
        'base_path': tmp_path,
        'notes': None,
        'lr_milestones': [1, 2],
        'lr_scheduler': 'multisteplr',
    }
    model, dataset = bench.load_runner(
        'er', 'seq-digits', {'buffer_size': 20}, weights=tiny_weights, n_splits=2, **flags
    )
    row = bench.train(model, dataset)
    assert row['model'] == 'er'
    assert row['lr_milestones'] == [1, 2]
    assert 0 <= row['final_accuracy'] <= 100
    [written] = read_rows(tmp_path / 'results' / 'class-il' / 'seq-digits' / 'er' / 'mean_accs.csv')
    assert float(written['final_accuracy']) == row['final_accuracy']
    assert written['run'] == row['run']
    assert len(model.buffer) == 20
    assert dataset.N_TASKS == 2
    with refused('has begun already', 'load_runner'):
        bench.train(model, dataset)


def test_a_method_of_a_notebook(monkeypatch):
    monkeypatch.setattr(models.PLUGINS, 'registered', dict(models.PLUGINS.registered))

    @bench.register_model('mine')
    class Mine(bench.ContinualModel):
        COMPATIBILITY = ['class-il']

        @staticmethod
        def get_parser(parser):
            parser.add_argument('--strength', type=float, required=True)
            return parser

        def observe(self, inputs, labels, not_aug_inputs, epoch=None):
            self.seen = getattr(self, 'seen', 0) + len(labels)
            return 0

    required, optional = bench.get_avail_args('seq-digits', 'mine')
    assert set(required) == {'strength', 'lr'}
    assert optional['bn']['choices'] == ('train', 'frozen')
    assert 'batch' in optional['batch_size']['description']
    model, dataset = bench.load_runner(
        'mine', 'seq-digits', strength=2, backbone='resnet18', num_filters=2, **FIXED
    )
    row = bench.train(model, dataset)
    assert model.seen == len(dataset.train_labels)
    assert row['strength'] == 2
    assert model.net.classifier.in_features == 16


def test_names_that_mammoth_has_at_the_top_of_its_package():
    names = """register_model register_dataset register_backbone get_model_names get_dataset_names
        get_backbone_names ContinualModel ContinualDataset MammothBackbone ReturnTypes Buffer
        base_path get_device add_rehearsal_args store_masked_loaders set_default_from_args
        load_runner train get_avail_args"""
    for name in names.split():
        assert getattr(bench, name) is not None
        assert getattr(mammoth, name) is getattr(bench, name)
    assert not hasattr(bench, 'no_such_name')
