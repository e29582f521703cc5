"""A wide network that starts as a narrow one: the same function, and no two channels alike in how they are read."""
import pytest
import torch

from backbone import get_backbone_class
from bench.pretraining.widening import widened


def net(name, **options):
    return get_backbone_class(name)(num_classes=3, **options).eval()


def of_features(network) -> dict:
    return {name: t for name, t in network.state_dict().items()
            if not name.startswith('classifier.') and not name.endswith('num_batches_tracked')}


def random_statistics(network):
    """Batch norms that do something."""
    for name, t in network.state_dict().items():
        if name.endswith('running_mean'):
            t.copy_(torch.randn(t.shape) / 10)
        elif name.endswith('running_var'):
            t.copy_(torch.rand(t.shape) + 0.5)
    return network


@pytest.mark.parametrize('times', [1, 2, 3])
def test_the_function_stays(times):
    narrow, wide = random_statistics(net('resnet18-md', width=4)), net('resnet18-md', width=4 * times)
    tensors = widened(of_features(narrow), wide, torch.Generator().manual_seed(0))
    wide.load_state_dict({**wide.state_dict(), **tensors})
    x = torch.randn(5, 3, 24, 24, generator=torch.Generator().manual_seed(1))
    assert narrow.features(x).std() > 0.01
    torch.testing.assert_close(wide.features(x), narrow.features(x).repeat(1, times), rtol=1e-4, atol=1e-5)


def test_copies_learn_different_things():
    narrow, wide = random_statistics(net('resnet18-md', width=4)), net('resnet18-md', width=8)
    wide.load_state_dict({**wide.state_dict(), **widened(of_features(narrow), wide, torch.Generator().manual_seed(0))})
    wide(torch.randn(6, 3, 24, 24)).square().sum().backward()
    gradient = wide.layer1[0].conv1.weight.grad
    assert (gradient[:4] - gradient[4:]).abs().max() > 1e-3 * gradient.abs().max()


def test_what_does_not_fit_is_named():
    narrow, generator = of_features(net('resnet18-md', width=4)), torch.Generator()
    with pytest.raises(ValueError, match='conv1.weight is no whole multiple'):
        widened(narrow, net('resnet18-md', width=6), generator)
    with pytest.raises(ValueError, match='is missing'):
        widened({name: t for name, t in narrow.items() if name != 'bn1.weight'}, net('resnet18-md', width=8), generator)
    with pytest.raises(ValueError, match='extra is not part'):
        widened(narrow | dict(extra=torch.zeros(1)), net('resnet18-md', width=8), generator)
