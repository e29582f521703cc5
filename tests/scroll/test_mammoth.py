"""SCROLL inside a made-up Mammoth, of today's contract and of that of 2020: the command's file."""

import runpy
import sys
from argparse import ArgumentParser
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torchvision import transforms

from scroll import Scroll
from scroll.__main__ import main
from tests.scroll.conftest import refused

MOMENTS = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)
IMAGES = np.random.default_rng(0).integers(256, size=(32, 8, 8, 3), dtype=np.uint8)
LABELS = np.arange(32) // 8
IMAGES[..., 0] = IMAGES[..., 0] // 4 + 48 * LABELS[:, None, None]
TO_FLOATS = transforms.ToTensor()
NORMALISE = transforms.Normalize(*MOMENTS)
RAW = torch.stack([TO_FLOATS(image) for image in IMAGES])


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = torch.nn.Sequential(torch.nn.Conv2d(3, 12, 3, padding=1))
        self.classifier = torch.nn.Linear(12, 4)

    def to(self, device):
        return super().to(device)

    def features(self, x):
        return self.block(x).relu().mean(dim=(2, 3))

    def forward(self, x):
        return self.classifier(self.features(x))


class Today(torch.nn.Module):
    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__()
        assert dataset.N_TASKS == 2
        self.net, self.args, self.device = backbone, args, torch.device('cpu')

    def forward(self, x):
        return self.net(x)


class Of2020(torch.nn.Module):
    def __init__(self, backbone, loss, args, transform):
        super().__init__()
        self.net, self.args, self.device = backbone, args, torch.device('cpu')


@pytest.fixture(params=[Today, Of2020])
def train(request, tmp_path, monkeypatch, capsys):
    """A function that trains on two tasks of two classes as a Mammoth does: (model, accuracy)."""
    (tmp_path / 'models' / 'utils').mkdir(parents=True)
    (tmp_path / 'models' / 'utils' / 'continual_model.py').touch()
    assert main(['mammoth', str(tmp_path)]) == main(['mammoth', str(tmp_path)]) == 0
    base = SimpleNamespace(ContinualModel=request.param)
    monkeypatch.setitem(sys.modules, 'models.utils.continual_model', base)
    flags = SimpleNamespace(
        add_management_args=lambda parser: parser.add_argument('--seed', type=int),
        add_experiment_args=lambda parser: parser.add_argument('--n_epochs', type=int),
    )
    monkeypatch.setitem(sys.modules, 'utils.args', flags)
    monkeypatch.setattr(sys, 'excepthook', sys.excepthook)
    file = runpy.run_path(str(tmp_path / 'models' / 'scroll.py'))
    today = request.param is Today

    def run(words='', batch=5, normalise=NORMALISE, setting='class-il', count=16):
        parser = ArgumentParser()
        if today:
            parser.add_argument('--seed', type=int)
            file['Scroll'].get_parser(parser.add_argument_group('of the method'))
            parser.add_argument('--n_epochs', type=int)
        else:
            parser = file['get_parser']()
        args = parser.parse_args(['--buffer_size', '6', '--iterations', '2', *words.split()])
        torch.manual_seed(0)
        dataset = SimpleNamespace(N_TASKS=2, NAME='made-up', SETTING=setting, test_loaders=[])
        transform = transforms.Compose(
            [
                transforms.ToPILImage(),
                transforms.Compose([transforms.RandomHorizontalFlip(), TO_FLOATS, normalise]),
            ]
        )
        more = [dataset] if today else []
        model = file['Scroll'](Network(), None, args, transform, *more)
        evaluated = model if today else model.net
        for task in range(2):
            ids = np.arange(16) + 16 * task
            dataset.test_loaders.append(ids)
            dataset.train_loader = SimpleNamespace(dataset=ids)
            evaluated(normalise(RAW))  # forward transfer
            model.begin_task(dataset)
            for epoch in range(1 + today):
                order = np.random.default_rng(batch + epoch).permutation(ids)[:count]
                for at in np.split(order, range(batch, len(order), batch)):
                    options = {'epoch': epoch} if today else {}
                    labels = torch.from_numpy(LABELS[at])
                    model.observe(normalise(RAW[at]), labels, RAW[at], **options)
            model.net.train()
            model.end_task(dataset)
            model.net.eval()
            found = evaluated(NORMALISE(RAW)).argmax(dim=1).numpy()
        return model, (found == LABELS).mean()

    return run


def test_one_digest_whatever_the_batches_and_the_contract(train, tmp_path, capsys):
    path = tmp_path / 'state.npz'
    model, accuracy = train(f'--save_state {path}')
    other, _ = train(batch=16)
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == said[-3]
    assert said[-1].startswith('scroll: 32 samples, statistics_digest ')
    assert vars(model.args)['statistics_digest'] == model.learner.digest()
    assert vars(model.args)['adapted_digest'] == other.learner.adapted_.digest()
    by_hand = Scroll(model.learner.embedder, buffer_size=6).partial_fit(IMAGES, LABELS)
    assert model.learner.digest() == by_hand.digest()
    assert accuracy == (model.learner.predict(IMAGES) == LABELS).mean() > 0.5
    assert path.is_file()
    online, _ = train('--adaptation none --head ncc --embed_dtype exact')
    assert online.learner.head == 'ncc'
    assert online.learner.adapted_ is None
    assert online.learner.embedder.valid_on == 'every machine'


@pytest.mark.parametrize(
    'words, options, said',
    [
        ('--n_epochs 2', {}, 'each sample is learned once'),
        ('--head none', {}, 'head'),
        ('', {'setting': 'domain-il'}, 'made-up is domain-il: expected class-il'),
        ('', {'normalise': transforms.Normalize(0.5, 2.0)}, 'images are not bytes'),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(train, words, options, said, capsys):
    if 'normalise' in options:
        options['normalise'].mean = options['normalise'].std = (0.5,) * 3
    with refused(said) as caught:
        train(words, **options)
    with pytest.raises(SystemExit, match='2'):
        sys.excepthook(type(caught.value), caught.value, None)
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_samples_that_a_loader_drops_are_counted(train):
    with pytest.warns(UserWarning, match='6 samples of this task did not come'):
        train(count=10)


def test_the_command_writes_over_nothing_and_into_mammoth_alone(tmp_path, capsys):
    assert main(['mammoth', str(tmp_path)]) == 2
    (tmp_path / 'models' / 'utils').mkdir(parents=True)
    (tmp_path / 'models' / 'utils' / 'continual_model.py').touch()
    theirs = tmp_path / 'models' / 'scroll.py'
    theirs.write_text('theirs')
    assert main(['mammoth', str(tmp_path)]) == 2
    assert theirs.read_text() == 'theirs'
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert 'expected a Mammoth' in said[0]
    assert 'move it away' in said[1]
