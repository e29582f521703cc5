"""Stages of training other methods: a step, the loader, evaluation, start-up."""
import argparse
import copy
import sys
import tempfile
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from PIL import Image
from torchvision import transforms

from backbone import get_backbone_class
from bench.run.devices import arrange
from bench.speed.timing import Line, fastest, of_command, operations
from core.plugins import ROOT
from datasets.utils.loader import ImageLoader, InMemoryDataset
from models import get_model_class
from scroll.embedding.images import Preprocessing
from utils.augmentations import BatchTransform, PlainTransform
from utils.evaluate import eval_mode, evaluate

BATCH, CLASSES, CANDIDATES, MEMORY = 32, 100, 50, 64
# images of the forward and backward passes of one step, and images that are only looked at
PASSES = dict(er=((2 * BATCH,), ()), derpp=((BATCH,) * 3, ()), er_ace=((BATCH,) * 2, ()),
              mir=((BATCH,) * 2, (CANDIDATES,) * 2), gem=((BATCH, MEMORY // 2, MEMORY // 2), ()))
FIRST_BATCH = '''import os, sys
from bench.cli.command import main
from models.utils.continual_model import ContinualModel
ContinualModel.meta_observe = lambda *given, **more: os._exit(0)
sys.exit(main() or 1)'''


def make_method(name, net, preprocessing, images, device='cpu'):
    """A method on a copy of the network, and a full buffer; `step` learns from the next
    batch of its stream, as in a run."""
    args = argparse.Namespace(lr=1e-4, optimizer='sgd', optim_wd=0, optim_mom=0, optim_nesterov=False,
                              device=device, seed=0,
                              buffer_size=MEMORY if name == 'gem' else 500, minibatch_size=BATCH, alpha=0.5,
                              beta=0.5, gamma=0.5,
                              subsample=CANDIDATES, task_free=True, use_custom_classifier=False)
    net, transform = copy.deepcopy(net).train(), BatchTransform(preprocessing, 4, True, 0)
    net.classifier = torch.nn.Linear(net.feature_dim, CLASSES)
    method = get_model_class(name)(net, torch.nn.functional.cross_entropy, args, transform).to(device)
    method.normalization_transform = PlainTransform(preprocessing)
    arrange(method)
    size = args.buffer_size
    kept = dict(examples=torch.from_numpy(images[:size]), labels=torch.arange(size) % CLASSES)
    kept |= {'logits': torch.zeros(size, CLASSES)} if name == 'derpp' else {}
    kept |= {'task_labels': torch.arange(size) % 2} if name in ('mir', 'gem') else {}
    method.buffer.add_data(**kept)
    stream = InMemoryDataset(images, torch.arange(len(images)) % CLASSES, transform)
    loader = ImageLoader(stream, BATCH, shuffle=True, drop_last=True)
    loader.serve(method.RAW_STREAM, method.RAW_NOT_AUG, device)

    def batches():
        while True:
            yield from loader

    coming = batches()
    method.step = lambda: method.meta_observe(*next(coming), epoch=0)
    return method


def steps_on(device, backbone, images, rounds) -> list:
    """A step of ER on a device: eager, compiled, and compiled into CUDA graphs (on a CPU only traced)."""
    ways = [('eager', None), ('compiled', dict(mode='default')),
            ('as CUDA graphs', dict(mode='reduce-overhead'))]
    if device.type != 'cuda':
        ways = [('eager', None), ('traced', dict(backend='eager'))]
    lines = []
    for name, how in ways:
        method = make_method('er', *backbone, images, device)
        if how:
            method.net.compile(**how)

        def step(method=method):
            method.step()
            if device.type == 'cuda':
                torch.cuda.synchronize(device)
        took, = fastest(step, rounds=rounds, seconds=time.perf_counter)
        lines.append(Line(f'a step of `er`, {name}', took, lines[0].ours if lines else None,
                          'eager' if lines else ''))
    return lines


def bare_step(method, preprocessing, trained, seen):
    """A function that passes as many ready inputs through the method's network,
    forward and backward, and updates it."""
    net, size = copy.deepcopy(method.net), preprocessing.input_size
    opt, labels = torch.optim.SGD(net.parameters(), lr=1e-4), torch.arange(CLASSES)
    inputs = {count: torch.randn(count, 3, size, size) for count in {*trained, *seen}}

    def step():
        opt.zero_grad()
        for count in trained:
            torch.nn.functional.cross_entropy(net(inputs[count]), labels[:count]).backward()
        with torch.no_grad():
            for count in seen:
                net(inputs[count])
        opt.step()
    return step


def steps(backbone, images, rounds, peak) -> list:
    """A step of each method, with loading, augmentation, replay and
    insertion, beside its network's own work."""
    lines = []
    for name, passes in PASSES.items():
        method = make_method(name, *backbone, images)
        bare = bare_step(method, backbone[1], *passes)
        ours, plain = fastest(method.step, bare, rounds=rounds)
        lines.append(Line(f'a step of `{name}`', ours, plain, 'forward, backward, update',
                          share=operations(bare) / ours / peak[0], peak='product'))
    return lines


def narrow_step(images, rounds, peak) -> list:
    """A step of ER with Mammoth's reduced-resnet18, beside one whose images and maps
    are contiguous, as torch has it."""
    size = images.shape[1]
    arranged, plain = (make_method('er', get_backbone_class('reduced-resnet18')(num_classes=1),
                                   Preprocessing(size), images)
                       for _ in range(2))
    plain.net.channels_last = False
    plain.net.register_forward_pre_hook(lambda net, given: (given[0].contiguous(),))
    ours, other = fastest(arranged.step, plain.step, rounds=rounds)
    return [Line('a step of `er`, reduced-resnet18, 32 + 32', ours, other, 'the same, contiguous', 2 / 3,
                 share=operations(arranged.step) / ours / peak[0], peak='product')]


def mixed_step(backbone, images, rounds, peak) -> list:
    """A step of ER with the backbone, whose small maps are contiguous, beside one with the other layout
    throughout."""
    mixed, plain = (make_method('er', *backbone, images) for _ in range(2))
    plain.net.CONTIGUOUS_PIXELS = 0
    ours, other = fastest(mixed.step, plain.step, rounds=rounds)
    return [Line('a step of `er`, few pixels contiguous', ours, other, 'none of them contiguous',
                 share=operations(mixed.step) / ours / peak[0], peak='product')]


class Pictures(torch.utils.data.Dataset):
    """The usual pipeline: a PIL image at a time, cropped, flipped, resized, made a tensor and normalised."""

    def __init__(self, images, preprocessing):
        size = preprocessing.input_size
        self.images, self.transform = images, transforms.Compose([
            transforms.RandomCrop(images.shape[1], padding=4), transforms.RandomHorizontalFlip(),
            transforms.Resize(size),
            transforms.ToTensor(), transforms.Normalize(preprocessing.mean, preprocessing.std)])

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.images[index])), index


def loading(backbone, images, rounds, peak) -> list:
    """An epoch of the loader, beside the training steps it feeds, and beside the
    usual pipeline with worker processes."""
    net, preprocessing = backbone
    data = InMemoryDataset(images, torch.arange(len(images)), BatchTransform(preprocessing, 4, True, 0))
    loader = ImageLoader(data, BATCH, shuffle=True)
    step = bare_step(make_method('er', net, preprocessing, images), preprocessing, (BATCH,), ())

    def ours():
        for _ in loader:
            pass

    epoch, one = fastest(ours, step, rounds=rounds)
    size = sum(x.nbytes for batch in loader for x in batch)
    lines = [Line(f'loader and augmentation, an epoch of {len(images):,} images', epoch, one * len(loader),
                  "the backbone's training steps", 0.1, share=size / epoch / peak[1], peak='memory')]
    pictures = Pictures(images, preprocessing)
    for workers in (0, 2, 8):
        def usual(workers=workers):
            with warnings.catch_warnings():
                # more workers than cores: as is usual
                warnings.filterwarnings('ignore', 'This DataLoader will create')
                for _ in torch.utils.data.DataLoader(pictures, BATCH, shuffle=True, num_workers=workers):
                    pass
        own, theirs = fastest(ours, usual, rounds=min(rounds, 3), seconds=time.perf_counter)
        lines.append(Line('the same, by the clock', own, theirs,
                          f'PIL, an image at a time, {workers} workers'))
    return lines


def evaluation(backbone, images, rounds, peak) -> list:
    """Evaluation of a task beside the forward pass on ready inputs."""
    method = make_method('er', *backbone, images)
    test = InMemoryDataset(images, torch.arange(len(images)) % CLASSES, backbone[1], train=False)
    loader = ImageLoader(test, 256)
    dataset = SimpleNamespace(test_loaders=[loader], c_task=0, seen_classes=lambda: np.arange(CLASSES),
                              task_classes=lambda task: np.arange(CLASSES))
    ready = [x for x, _ in loader]

    @torch.no_grad()
    def forward():
        with eval_mode(method.net):
            for x in ready:
                method.net(x)

    ours, plain = fastest(lambda: evaluate(method, dataset), forward, rounds=rounds)
    return [Line(f'evaluation of {len(images):,} images', ours, plain, 'bare forward pass', 1 / 0.9,
                 share=operations(forward) / ours / peak[0], peak='product')]


def start(images, rounds) -> list:
    """Until `--help` has answered, and until a run has its first batch: of a folder of
    200 pictures, and of the digits."""
    lines = [Line('`--help`', of_command([sys.executable, 'main.py', '--help'], rounds, cwd=ROOT),
                  target=1.0)]
    with tempfile.TemporaryDirectory() as folder:
        for number, image in enumerate(images[:200]):
            path = Path(folder, 'train' if number % 2 else 'test', f'class {number // 20}')
            path.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path / f'{number}.png')
        for dataset, more in (('seq-folder', ['--data_dir', folder]), ('seq-digits', [])):
            words = ['--model', 'er', '--dataset', dataset, *more, '--buffer_size', '200', '--lr', '0.1',
                     '--device', 'cpu',
                     '--disable_log', '1', '--non_verbose', '1']
            lines.append(Line(f'a run up to its first batch, {dataset}',
                              of_command([sys.executable, '-c', FIRST_BATCH, *words], rounds, cwd=ROOT),
                              target=5.0))
    return lines
