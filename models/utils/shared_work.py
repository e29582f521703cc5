"""Backbone and adaptation in a run of several processes (`core.distributed`), with the same bits as in one.

An image's feature depends on its pixels and the backbone alone, so each process embeds a share of them. With
a buffer, every process gets all features (4 d + 8 bytes an image) and counts and keeps the same integers.
Without, it counts its share alone, and sums are all-reduced (8 (d + 1)^2 + 8 K (d + 1) bytes, whatever the
number of images). Every process holds the whole data set. The first makes f* and sends it to the others.
"""
import copy
import io

import numpy as np
import torch

from core.distributed import World
from scroll.adaptation.training import AdaptedPredictor
from scroll.embedding.embedder import Embedder
from scroll.learner import Scroll
from scroll.statistics import Statistics


class SharedEmbedder:
    """An `Embedder` that all processes call with the same images at the same time."""

    def __init__(self, embedder: Embedder, world: World):
        self.embedder, self.world = embedder, world

    def __getattr__(self, name: str):
        return getattr(vars(self)['embedder'], name)

    def __call__(self, images, progress=None, keep: bool = True) -> tuple:
        """As `Embedder`; `progress` is called for this process's share."""
        features, keys = self.embedder(images[self.world.share(len(images))], progress, keep)
        return self.world.gather(features), self.world.gather(keys)

    def features(self, images) -> np.ndarray:
        return self.world.gather(self.embedder.features(images[self.world.share(len(images))]))


def summed(learner: Scroll, embedder: SharedEmbedder, images, labels: np.ndarray, progress) -> Statistics:
    """The statistics of images that all processes hold, of which each embeds and counts its share."""
    own = embedder.world.share(len(labels))
    features, _ = embedder.embedder(images[own], progress)
    counted = learner.new_statistics(features.shape[1]).add(features, labels[own])
    return counted.summed(np.unique(labels), embedder.world.sum)


def shared(embedder: Embedder, world: World):
    """The embedder of this run; InputError if processes have different ones."""
    if world.size == 1:
        return embedder
    world.agree(embedder.digest, 'the processes run different backbones, or on different kinds of machines '
                                 'or versions of torch: their features would differ in the last bits')
    return SharedEmbedder(embedder, world)


def adapt(learner: Scroll, world: World, progress) -> None:
    """`learner.adapt` in the first process; the others get its f*. Of features, whose classifier alone is
    adapted, in every process."""
    if world.rank == 0 or learner.embedder is None:
        learner.adapt(progress)
    if world.size == 1 or learner.embedder is None:
        return
    made = learner.adapted_ if world.rank == 0 else None
    content = world.from_first(b'' if made is None else _pack(made))
    if not content:
        learner.use_adapted(None, learner.selection_ or [])             # f* is f_T
        return
    f_star = _unpack(content, learner)
    f_star.embedder = SharedEmbedder(f_star.embedder, world)
    learner.use_adapted(f_star, learner.selection_)


def _pack(f_star: AdaptedPredictor) -> bytes:
    file = io.BytesIO()
    torch.save(dict(net=f_star.embedder.pristine.state_dict(), weight=torch.from_numpy(f_star.weight),
                    bias=torch.from_numpy(f_star.bias), losses=torch.from_numpy(f_star.losses),
                    mode=f_star.mode, scale=f_star.scale, initial_scale=f_star.initial_scale), file)
    return file.getvalue()


def _unpack(content: bytes, learner: Scroll) -> AdaptedPredictor:
    sent = torch.load(io.BytesIO(content), map_location=learner.embedder.device, weights_only=True)
    net = copy.deepcopy(learner.embedder.folded if sent['mode'] == 'adapters' else learner.embedder.pristine)
    net.load_state_dict(sent['net'])
    weight, bias, losses = (sent[name].cpu().numpy() for name in ('weight', 'bias', 'losses'))
    return AdaptedPredictor(learner.predictor(), weight, bias, sent['scale'], learner.embedder.with_net(net),
                            sent['initial_scale'], losses, sent['mode'])
