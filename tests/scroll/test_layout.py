"""Memory formats: channels-last only where training in it is sound on every CPU."""

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from scroll.embedding.embedder import Embedder
from scroll.embedding.machine import layout_for
from tests.conftest import ROOT, python
from tests.scroll.conftest import PREPROCESSING, tiny_net

# Heap corruption is silent until something trips over it; glibc's checking allocator looks at each
# block that is given back.
CHECKED = '/lib/x86_64-linux-gnu/libc_malloc_debug.so.0'
TRAIN = """
import copy, sys
import torch
from bench.pretraining.training import make_net
from scroll import Adaptation, Embedder, Preprocessing, Scroll
from scroll.embedding.machine import layout_for
from tests.scroll.conftest import tiny_net, toy_images
from bench.run.devices import arrange
from types import SimpleNamespace

torch.set_num_threads(1)
images, labels = toy_images(4, 42)
x, y = torch.rand(12, 3, 42, 42), torch.from_numpy(labels)

def steps(net, x):
    for _ in range(2):
        torch.nn.functional.cross_entropy(net.train()(x), y).backward()

for width in (4, 7):
    net = make_net('resnet18-md', 3, dict(width=width), 42)  # as pretrain.py trains it
    steps(net, x.contiguous(memory_format=layout_for(net)))
    net = tiny_net(width=width)  # as methods train it
    model = torch.nn.ModuleList([net])
    model.opt, model.device = True, torch.device('cpu')
    arrange(model)
    steps(net, x)
    for mode in ('adapters', 'full')[width % 2:]:  # as f_T is adapted
        how = Adaptation(mode, iterations=2, minibatch=8, calibrate=False)
        embedder = Embedder(tiny_net(width=width), Preprocessing(42))
        learner = Scroll(embedder, buffer_size=9, adaptation=how)
        learner.partial_fit(images, labels).adapt()
print('sound')
"""


@pytest.mark.parametrize(
    'convs, sound',
    [
        ([(3, 8, 3), (8, 8, 1, 2)], True),
        ([(3, 20, 3), (20, 40, 1, 2)], True),
        ([(3, 7, 3), (7, 8, 3)], False),
        ([(3, 8, 3), (8, 7, 3)], False),  # seven maps, written or read
        # the image's three, read by 1x1, and by 5x5
        ([(3, 8, 1)], False),
        ([(3, 8, 5, 2), (8, 64, 3)], True),
        ([], True),
    ],
)
def test_channels_last_from_eight_channels_on(convs, sound):
    assert layout_for(nn.Sequential(*(nn.Conv2d(*conv) for conv in convs))) == (
        torch.channels_last if sound else torch.contiguous_format
    )


def test_an_embedder_takes_the_layout_that_its_network_allows():
    layouts = [
        Embedder(tiny_net(width=width), PREPROCESSING, chunk=8, channels_last=wanted).layout
        for width, wanted in ((8, True), (8, False), (7, True))
    ]
    assert layouts == [torch.channels_last, torch.contiguous_format, torch.contiguous_format]


def test_training_keeps_to_its_memory_on_older_cpus():
    """Pre-training, a method's training and adaptation, with fewer than eight channels and with
    eight.
    """
    env = os.environ | {'ONEDNN_MAX_CPU_ISA': 'AVX2'}
    if Path(CHECKED).exists():
        env |= {'LD_PRELOAD': CHECKED, 'GLIBC_TUNABLES': 'glibc.malloc.check=3'}
    ended = python('-c', TRAIN, cwd=ROOT, env=env)
    assert (ended.returncode, ended.stdout) == (0, 'sound\n'), ended.stderr[-2000:]
