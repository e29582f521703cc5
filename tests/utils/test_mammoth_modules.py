"""Modules that files written for Mammoth import: mixing, triplets, policies, conditional
norms, sentences, logging, the hub."""
import logging
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision import transforms
from torchvision.transforms import functional

from core import environment as conf
from datasets.utils import hf_download
from tests.conftest import ROOT, refused
from utils import custom_str_underscore
from utils.augmentations import CustomRandomCrop, CustomRandomHorizontalFlip, DoubleCompose, DoubleTransform
from utils.autoaugment import CIFAR10Policy, ImageNetPolicy, SVHNPolicy
from utils.conditional_bn import ConditionalBatchNorm1d, ConditionalBatchNorm2d
from utils.distributed import CustomDP, make_dp
from utils.kornia_utils import KorniaMultiAug
from utils.mixup import mixup
from utils.prompt_templates import templates
from utils.triplet import batch_hard_triplet_loss, negative_only_triplet_loss

# -- mixup ---------------------------------------------------------------------------------------------------

def test_mixup_mixes_all_pairs_by_one_share_of_at_least_one_half():
    x, other, y, labels = torch.zeros(3, 2), torch.ones(3, 2), torch.zeros(3), torch.ones(3)
    shares = []
    for seed in range(300):
        np.random.seed(seed)
        first, second = mixup([(x, other), (y, labels)], 0.75)
        assert len(set(first.flatten().tolist()) | set(second.tolist())) == 1
        shares.append(1 - float(second[0]))
    assert min(shares) >= 0.5 and 0.7 < np.mean(shares) < 0.85
    assert max(shares) > 0.99       # E max(l, 1 - l) = 0.78
    np.random.seed(299)
    share = np.random.beta(0.75, 0.75)
    assert shares[-1] == pytest.approx(max(share, 1 - share), rel=1e-5)
    assert torch.equal(mixup([(x, other)], 0)[0], x)
    with pytest.raises(ValueError, match=r'\(3, 2\).*\(3,\)'):
        mixup([(x, y)], 1)


# -- triplets ------------------------------------------------------------------------------------------------

LABELS, POINTS = torch.tensor([0, 0, 0, 1, 2]), torch.tensor([[0.], [1], [3], [4.5], [9]])


def test_triplets_by_hand():
    """Farthest of the class, nearest of another: (3, 4.5), (2, 3.5), (3,
    1.5); the last two have no positive."""
    gaps = np.array([3 - 4.5, 2 - 3.5, 3 - 1.5])
    hard = batch_hard_triplet_loss(LABELS, POINTS, 1, margin=1, margin_type='hard')
    assert float(hard) == pytest.approx(np.maximum(gaps + 1, 0).mean())
    assert float(batch_hard_triplet_loss(LABELS, POINTS,
                                         1)) == pytest.approx(np.log1p(np.exp(gaps)).mean(), rel=1e-5)
    two = batch_hard_triplet_loss(LABELS, POINTS, 2, margin=5, margin_type='hard')
    means = np.array([2 - 6.75, 1.5 - 5.75, 2.5 - 3.75]) + 5                         # of the two hardest each
    assert float(two) == pytest.approx(means.mean())
    nearest = np.array([4.5, 3.5, 1.5, 1.5, 4.5])
    away = negative_only_triplet_loss(LABELS, POINTS, 1, margin=4, margin_type='hard')
    assert float(away) == pytest.approx(np.maximum(4 - nearest, 0).mean())


def test_triplets_of_nothing_cost_nothing_and_gradients_are_finite():
    same = torch.zeros(3, 2, requires_grad=True)
    for loss in (batch_hard_triplet_loss, negative_only_triplet_loss):
        assert loss(torch.zeros(3).long(), same, 2).item() == 0
    loss = batch_hard_triplet_loss(torch.tensor([0, 0, 1]), same,
                                   1) + negative_only_triplet_loss(torch.tensor([0, 0, 1]), same, 1)
    loss.backward()
    assert loss > 0 and torch.isfinite(same.grad).all()
    with pytest.raises(ValueError, match='soft or hard'):
        negative_only_triplet_loss(LABELS, POINTS, 1, margin_type='firm')


# -- policies ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('policy', [CIFAR10Policy, ImageNetPolicy, SVHNPolicy])
def test_policies_change_images_of_each_kind(policy):
    torch.manual_seed(0)
    raw = torch.randint(0, 256, (3, 32, 32), dtype=torch.uint8)
    step, picture = policy(fillcolor=128), functional.to_pil_image(raw)
    pictures = [step(picture) for _ in range(8)]
    assert all(isinstance(p, Image.Image) and p.size == (32, 32) for p in pictures)
    assert sum(p.tobytes() != picture.tobytes() for p in pictures) >= 3
    floats = torch.stack([step(raw / 255) for _ in range(8)])
    assert floats.dtype == torch.float32 and floats.min() >= 0 and floats.max() <= 1
    assert torch.allclose(floats * 255, (floats * 255).round(), atol=1e-3)
    assert transforms.Compose([policy(), transforms.ToTensor()])(picture).shape == (3, 32, 32)


# -- conditional batch norms ---------------------------------------------------------------------------------

@pytest.mark.parametrize('kind, shape',
                         [(ConditionalBatchNorm1d, (6, 4)), (ConditionalBatchNorm2d, (6, 4, 3, 2))])
def test_each_condition_has_its_own_scale_and_shift(kind, shape):
    norm, x = kind(4, 3), torch.randn(shape)
    plain = (nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d)(4)
    assert torch.allclose(norm(x, torch.zeros(6).long()), plain(x), atol=1e-6)
    assert torch.allclose(norm.bn.running_mean, plain.running_mean)
    norm.weight.data[1], norm.bias.data[2] = 3.0, torch.arange(4.)
    norm.eval(), plain.eval()
    out, base = norm(x, torch.tensor([0, 1, 2, 0, 1, 2])), plain(x)
    shift = torch.arange(4.).view(1, 4, *[1] * (len(shape) - 2))
    assert torch.allclose(out[[0, 3]], base[[0, 3]])
    assert torch.allclose(out[[1, 4]], 3 * base[[1, 4]], atol=1e-5)
    assert torch.allclose(out[[2, 5]], base[[2, 5]] + shift, atol=1e-5)
    assert torch.allclose(norm(x, 1), 3 * base, atol=1e-5)


# -- images with maps ----------------------------------------------------------------------------------------

def corner_of(image):
    """Where the one white pixel of an image (C, H, W) lies."""
    return tuple(divmod(int(image[0].argmax()), image.shape[2]))


@pytest.mark.parametrize('resize', [False, True])
def test_a_crop_moves_maps_with_their_image(resize):
    torch.manual_seed(1)
    image = torch.zeros(3, 32, 32)
    image[:, 12, 20] = 1
    half, flat = torch.zeros(5, 16, 16), torch.zeros(8, 8)
    half[:, 6, 10], flat[3, 5] = 1, 1
    seen, step = set(), CustomRandomCrop(32, padding=4, resize=resize)
    for _ in range(40):
        out, maps = step(image, [image, half, flat])
        row, column = corner_of(out)
        seen.add((row - 12, column - 20))
        assert out.shape == image.shape and torch.equal(maps[0], out)
        assert [m.shape for m in maps] == [image.shape, half.shape, flat.shape]
        assert all(abs(2 * a - b) <= 1.5 for a, b in zip(corner_of(maps[1]), (row, column)))
        assert all(abs(4 * a - b) <= 3.5 for a, b in zip(corner_of(maps[2][None]), (row, column)))
    assert {a for a, _ in seen} | {b for _, b in seen} == set(range(-4, 5)) and len(seen) > 25
    whole, same = CustomRandomCrop((32, 32))(image, [half])
    assert torch.equal(whole, image) and torch.equal(same[0], half)


def test_a_crop_of_half_a_pixel_needs_an_enlarged_map():
    """An image shifted by one of 32 pixels: a map of 16 moves by half a pixel if it
    is resized, else by none or one."""
    edge = torch.zeros(1, 16, 16)
    edge[..., 8:] = 1
    torch.manual_seed(0)
    values = {False: set(), True: set()}
    for resize in values:
        step = CustomRandomCrop(32, padding=(1, 0, 1, 0), resize=resize)
        for _ in range(20):
            values[resize] |= {round(v, 2) for v in step(torch.zeros(3, 32, 32), [edge])[1][0][0, 5].tolist()}
    assert values[False] == {0, 1} and len(values[True]) > 2
    only = CustomRandomCrop(32, padding=(1, 0, 1, 0), resize=True,
                            min_resize_index=1)(torch.zeros(3, 32, 32), [edge, edge])[1]
    assert set(only[0].unique().tolist()) == {0, 1}
    with pytest.raises(ValueError, match='40'):
        CustomRandomCrop(40, padding=2)(torch.zeros(3, 32, 32), [])


def test_a_pipeline_of_two_from_a_picture():
    image, marks = torch.rand(3, 8, 8), torch.arange(16.).view(4, 4)
    steps = DoubleCompose([DoubleTransform(transforms.ToPILImage()), CustomRandomCrop(8, 0),
                           CustomRandomHorizontalFlip(1.0), DoubleTransform(transforms.ToTensor())])
    out, maps = steps(image, [marks])
    assert torch.allclose(out, image.flip(-1), atol=1 / 255) and torch.equal(maps[0], marks.flip(-1))
    assert torch.equal(CustomRandomHorizontalFlip(0.0)(image, [marks])[1][0], marks)
    flipped = sum(torch.equal(CustomRandomHorizontalFlip()(image, [marks])[1][0], marks.flip(-1))
                  for _ in range(200))
    assert 70 < flipped < 130


@pytest.mark.parametrize('steps', [[transforms.RandomCrop(8, padding=2), transforms.RandomHorizontalFlip()],
                                   [transforms.RandomAffine(30), transforms.RandomHorizontalFlip()]],
                         ids=['at once', 'one by one'])
def test_several_batches_are_changed_alike(steps):
    aug, x = KorniaMultiAug(transforms.Compose(steps)), torch.rand(5, 3, 8, 8)
    torch.manual_seed(0)
    first, double, grey = aug(x, 2 * x, x[:, :1])
    assert torch.allclose(2 * first, double) and torch.equal(first[:, :1], grey) and not torch.equal(first, x)
    torch.manual_seed(0)
    alone = aug(x)
    assert torch.equal(alone, first) and not torch.equal(aug(x), alone)
    assert isinstance(aug, nn.Module)


# -- sentences and names -------------------------------------------------------------------------------------

def test_there_are_sentences_for_each_kind_of_picture(capfd):
    for name, sentences in templates.items():
        assert sentences and all(s.count('{}') == 1 and s.format('x') for s in sentences), name
    assert templates['imagenet'] == templates['cifar100'] != templates['eurosat']
    conf.warn_once.cache_clear()
    assert templates['of-my-own'] == templates['imagenet'] and 'of-my-own' not in templates
    assert "'of-my-own'" in capfd.readouterr().err
    assert custom_str_underscore('a_b_c') == 'a-b-c'


# -- several GPUs --------------------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.classifier, self.note = nn.Linear(3, 2), nn.Linear(2, 2), 'here'

    def forward(self, x):
        return self.classifier(self.body(x))


def test_a_wrapped_network_has_the_attributes_of_its_network():
    """Also for them to be set: a new classifier is that of the network, not one beside it."""
    net = Net()
    wrapped = make_dp(net)
    assert isinstance(wrapped, CustomDP) and isinstance(wrapped, nn.DataParallel) and wrapped.module is net
    device = net.body.weight.device
    new = nn.Linear(2, 7).to(device)
    wrapped.classifier, wrapped.note = new, 'there'
    assert net.classifier is new is wrapped.classifier and net.note == 'there'
    assert 'classifier' not in dict(wrapped.named_children())
    assert wrapped(torch.randn(4, 3, device=device)).shape == (4, 7)
    wrapped.own = 3
    assert wrapped.own == 3 and not hasattr(net, 'own')
    assert wrapped.eval().training is False and not net.training and wrapped.train().training and net.training


# -- logging -------------------------------------------------------------------------------------------------

def say(level, before='pass'):
    code = f'import logging, utils; {before}; utils.setup_logging(); ' \
           'logging.info("small"); logging.warning("large")'
    return subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True,
                          env={'LOG_LEVEL': level, 'PATH': ''})


def test_logging_goes_to_the_standard_output_from_the_level_asked_for():
    lines = say('info').stdout.splitlines()
    assert len(lines) == 2 and re.fullmatch(r'\[INFO\] \d\d-\w{3}-\d\d \d\d:\d\d:\d\d - small', lines[0])
    assert [line[:9] for line in say('WARNING').stdout.splitlines()] == ['[WARNING]']
    assert 'LOG_LEVEL LOUD' in say('loud').stderr
    kept = say('info', 'logging.basicConfig(format="own %(message)s", level="INFO")')
    assert kept.stdout == '' and kept.stderr.splitlines() == ['own small', 'own large']
    assert logging.getLogger().level == logging.WARNING             # this process was left alone


# -- the hub -------------------------------------------------------------------------------------------------

def test_files_of_the_hub_are_fetched_once_into_their_folder(tmp_path, monkeypatch):
    asked = []

    def one(repo_id, filename, repo_type, local_dir, **more):
        asked.append((repo_id, filename, repo_type, more))
        (tmp_path / filename).write_text('content')
        return str(tmp_path / filename)
    hub = SimpleNamespace(hf_hub_download=one, snapshot_download=lambda repo_id, repo_type,
                          local_dir: local_dir)
    monkeypatch.setitem(sys.modules, 'huggingface_hub', hub)
    path = hf_download('someone/pictures', tmp_path, filename='a.zip', revision='main')
    assert path == str(tmp_path / 'a.zip')
    assert asked == [('someone/pictures', 'a.zip', 'dataset', dict(revision='main'))]
    assert hf_download('someone/pictures', tmp_path, filename='a.zip') == path and len(asked) == 1
    assert hf_download('someone/pictures', str(tmp_path)) == str(tmp_path)


def test_what_the_hub_does_not_give_is_said_in_one_line(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError('no\nnetwork')
    for hub, more, words in ((SimpleNamespace(hf_hub_download=fail), dict(filename='a.zip'),
                              ['a.zip', 'no network']),
                             (None, {}, ['all files of', 'install huggingface_hub'])):
        monkeypatch.setitem(sys.modules, 'huggingface_hub', hub)
        with refused('someone/pictures', str(tmp_path), *words):
            hf_download('someone/pictures', tmp_path, **more)
