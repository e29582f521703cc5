"""Vision transformers and EfficientNets of timm, by the names and flags of Mammoth."""
from backbone import register_backbone
from backbone.libraries import LibraryBackbone, drawn
from scroll.embedding.timm_networks import timm_network
from scroll.errors import InputError


def _made(name: str, num_classes: int, pretrained: bool, img_size: int = None) -> LibraryBackbone:
    try:
        net, _ = timm_network(name, random=None if pretrained else drawn(), img_size=img_size)
    except InputError as error:
        raise InputError(f'{error}; --pretrained 0 begins at random' if pretrained else str(error)) from error
    return LibraryBackbone(net, num_classes)


@register_backbone('vit')
def vit(num_classes: int, pretrained: bool = True, vit_name: str = 'vit_base_patch16_224',
        img_size: int = 224) -> LibraryBackbone:
    """Args:
        pretrained: with timm's weights, which it fetches.
        vit_name: any vision transformer that timm knows.
        img_size: pixels of the images that it gets.
    """
    return _made(vit_name, num_classes, pretrained, img_size)


@register_backbone('efficientnet')
def efficientnet(num_classes: int, pretrained: bool = True,
                 efficientnet_name: str = 'efficientnet_b0') -> LibraryBackbone:
    """Args:
        pretrained: with timm's weights, which it fetches.
        efficientnet_name: any EfficientNet that timm knows.
    """
    return _made(efficientnet_name, num_classes, pretrained)
