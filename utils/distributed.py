"""A network on several GPUs, under Mammoth's name."""
import torch

from core.mammoth import names_from_checkout

__getattr__ = names_from_checkout(__name__)


class CustomDP(torch.nn.DataParallel):
    """Splits each batch among several GPUs; other attributes are those of the network, also to be set."""

    def __getattr__(self, name: str):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__('module'), name)

    def __setattr__(self, name: str, value) -> None:
        module = vars(self).get('_modules', {}).get('module')
        if name not in vars(self) and hasattr(module, name):                # a new classifier, say
            setattr(module, name, value)
        else:
            super().__setattr__(name, value)
