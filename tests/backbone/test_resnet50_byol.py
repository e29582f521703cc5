"""BYOL's ResNet50 against torchvision's, and its 'SAME' padding as TensorFlow defines it."""

import torch
from torchvision import models

from backbone.resnet50_byol import ResNet50Byol, same
from tests.backbone.conftest import pictures, settle


@torch.no_grad()
def test_torchvisions_network_agrees_where_sides_are_odd_and_only_there():
    """Then 'SAME' is symmetric. The tensors have torchvision's names and shapes."""
    theirs = settle(models.resnet50(num_classes=5))
    ours = ResNet50Byol(5).eval()
    ours.load_state_dict(
        {name.replace('fc.', 'classifier.'): t for name, t in theirs.state_dict().items()}
    )
    # 65 -> 33 -> 17 -> 17 -> 9 -> 5 -> 3
    odd = pictures(1, 65)
    even = pictures(1, 64)
    scale = float(theirs(odd).abs().max())
    torch.testing.assert_close(ours(odd), theirs(odd), rtol=1e-4, atol=1e-4 * scale)
    assert (ours(even) - theirs(even)).abs().max() > 1e-2 * scale


def test_windows_are_padded_as_tensorflow_does():
    for kernel, sides in ((7, (64, 33)), (3, (8, 7)), (3, (9, 12))):
        conv = torch.nn.Conv2d(3, 4, kernel, 2, kernel // 2, bias=False)
        x = torch.randn(2, 3, *sides)
        totals = [max((-(-side // 2) - 1) * 2 + kernel - side, 0) for side in sides]
        (top, bottom), (left, right) = ((total // 2, total - total // 2) for total in totals)
        expected = torch.nn.functional.conv2d(
            torch.nn.functional.pad(x, (left, right, top, bottom)), conv.weight, stride=2
        )
        torch.testing.assert_close(same(conv, x), expected)
