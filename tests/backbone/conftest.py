"""Small instances of every architecture, as if they had been trained."""

from types import SimpleNamespace

import torch

from backbone import get_backbone

OPTIONS = {  # that make the network small, where it can be
    'resnet18-md': {'width': 4},
    'resnet12': {'width': 2},
    'resnet50-byol': {'width': 2},
    'resnet18': {'num_filters': 4},
    'reduced-resnet18': {'num_filters': 3},
    'resnet34': {'num_filters': 2},
    'efficientnet-lite': {},
}


def build(name: str, num_classes: int = 5, **options):
    return get_backbone(SimpleNamespace(backbone=name, num_classes=num_classes, lr=1, **options))


def settle(net, seed: int = 0):
    """Batch norms with running statistics and factors of a trained network; eval mode. Returns
    `net`.
    """
    generator = torch.Generator().manual_seed(seed)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.2, generator=generator)
            module.running_var.uniform_(0.5, 2, generator=generator)
            module.weight.data.uniform_(0.5, 1.5, generator=generator)
            module.bias.data.normal_(0, 0.2, generator=generator)
    return net.eval()


def small(name: str, seed: int = 0, **options):
    """A small seeded network in eval mode."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return settle(build(name, **(OPTIONS[name] | options)), seed)


def pictures(count: int = 3, size: int = 32, dtype=torch.float32) -> torch.Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(0)).to(dtype)
