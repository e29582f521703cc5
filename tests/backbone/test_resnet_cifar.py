"""ResNets for small images against torchvision's, their stem replaced."""

import torch
from torch import nn
from torchvision import models

from backbone.resnet_cifar import resnet18
from scroll.embedding.embedder import state_digest
from tests.backbone.conftest import pictures, settle, small


@torch.no_grad()
def test_features_are_those_of_torchvision_with_a_3x3_stem():
    reference = models.resnet18(num_classes=4)
    reference.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    reference.maxpool = nn.Identity()
    settle(reference)
    net = resnet18(4)
    net.load_state_dict(
        {
            name.replace('fc.', 'classifier.').replace('downsample', 'shortcut'): t
            for name, t in reference.state_dict().items()
        }
    )
    x = pictures(2, 16)
    torch.testing.assert_close(
        net.eval()(x), reference(x), rtol=1e-4, atol=1e-4 * float(reference(x).abs().max())
    )


def test_maps_lie_as_the_network_wants_them_and_not_as_the_batch_did():
    """oneDNN's backward pass is not safe where a network of few channels gets a batch whose pixels'
    channels lie together.
    """
    net = small('reduced-resnet18', num_filters=4)
    x = pictures(2, 16).contiguous(memory_format=torch.channels_last)
    for last, layout in ((False, torch.contiguous_format), (True, torch.channels_last)):
        net.channels_last = last
        assert net.maps(x)[0].is_contiguous(memory_format=layout)
        assert net.maps(x.contiguous())[0].is_contiguous(memory_format=layout)


def test_names_of_tensors_are_mammoths_and_digests_those_of_before():
    """The projection of a stage that halves."""
    for name in ('resnet18', 'resnet34', 'reduced-resnet18'):
        words = {
            key.split('.')[2] for key in small(name).state_dict() if key.startswith('layer2.0')
        }
        assert words == {'conv1', 'bn1', 'conv2', 'bn2', 'shortcut'}
    net = small('resnet18')
    for at, tensor in enumerate(net.state_dict().values()):
        tensor.copy_(torch.arange(tensor.numel()).view(tensor.shape) % 7 + at)
    assert state_digest(net) == '7191560f2b364c66ba5e315436085b54e9a09bcaeec59d67216566b4d00994b8'
