"""Vision transformers of `timm`, an optional dependency (`pip install timm`), imported when one is built."""
import torch

from backbone import MammothBackbone, ReturnTypes, register_backbone
from scroll.errors import InputError


class TimmBackbone(MammothBackbone):
    """A network of timm, as a backbone.

    Features are what its head gets: of a ViT, the class token or the mean of all.

    Args:
        net: made by `timm.create_model`. img_size: pixels of the images it can take; None: any.
    """

    def __init__(self, net: torch.nn.Module, num_classes: int, img_size: int = None):
        super().__init__()
        net.reset_classifier(0)                     # the head is ours: methods replace it
        self.body, self.num_classes = net, num_classes
        self.feature_dim, self.img_size = net.num_features, img_size
        self.classifier = torch.nn.Linear(self.feature_dim, num_classes)

    def _fitting(self, x: torch.Tensor) -> torch.Tensor:
        if self.img_size not in (None, x.shape[-1]):
            raise InputError(f'--backbone vit: it takes images of {self.img_size} pixels, these have '
                             f'{x.shape[-1]}: give --input_size {self.img_size}, or --img_size {x.shape[-1]}')
        return x

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self._fitting(x))

    def forward(self, x: torch.Tensor, returnt: ReturnTypes = 'out'):
        """As every backbone; `full` gives (logits, list of maps (B, C, H', W')), of a ViT the patches after
        each block."""
        if returnt not in ('full', 'all'):
            return super().forward(x, returnt)
        final, maps = self.body.forward_intermediates(self._fitting(x))
        return self.classifier(self.body.forward_head(final)), [m.contiguous() for m in maps]


def _made(name: str, num_classes: int, pretrained: bool, **options) -> TimmBackbone:
    """ValueError, for one line, where timm is missing, or has no such network, or no weights."""
    try:
        import timm
    except ImportError as error:
        raise ValueError(f'timm is not installed ({error}): pip install timm') from error
    try:
        return TimmBackbone(timm.create_model(name, pretrained=pretrained, **options), num_classes, **options)
    except Exception as error:                      # whatever the network, the hub or timm says
        raise ValueError(f'{name}: {type(error).__name__}: {" ".join(str(error).split())[:300]}' + (
            '; where there is no network, give --pretrained 0, or --weights FILE'
            if pretrained else '')) from error


@register_backbone('vit')
def vit(num_classes: int, pretrained: bool = True, vit_name: str = 'vit_base_patch16_224',
        img_size: int = 224) -> TimmBackbone:
    """Args:
        pretrained: with timm's weights, which it fetches.
        vit_name: any vision transformer that timm knows.
        img_size: pixels of the images that it gets.
    """
    return _made(vit_name, num_classes, pretrained, img_size=img_size)


@register_backbone('efficientnet')
def efficientnet(num_classes: int, pretrained: bool = True,
                 efficientnet_name: str = 'efficientnet_b0') -> TimmBackbone:
    """Args:
        pretrained: with timm's weights, which it fetches.
        efficientnet_name: any EfficientNet that timm knows.
    """
    return _made(efficientnet_name, num_classes, pretrained)
