"""BYOL's ResNet50 against torchvision's; its 'SAME' padding is compared with numpy in `test_checkpoints.py`."""
import torch
from torchvision import models

from backbone.resnet50_byol import ResNet50Byol
from tests.backbone.conftest import pictures, settle


@torch.no_grad()
def test_torchvisions_network_agrees_where_sides_are_odd_and_only_there():
    """Then 'SAME' is symmetric. The tensors have torchvision's names and shapes."""
    theirs, ours = settle(models.resnet50(num_classes=5)), ResNet50Byol(5).eval()
    ours.load_state_dict({name.replace('fc.', 'classifier.'): t for name, t in theirs.state_dict().items()})
    odd, even = pictures(1, 65), pictures(1, 64)                # 65 -> 33 -> 17 -> 17 -> 9 -> 5 -> 3
    scale = float(theirs(odd).abs().max())
    torch.testing.assert_close(ours(odd), theirs(odd), rtol=1e-4, atol=1e-4 * scale)
    assert (ours(even) - theirs(even)).abs().max() > 1e-2 * scale
