"""Mammoth's names for a network on several GPUs."""
import torch


class CustomDP(torch.nn.DataParallel):
    """A network that splits each batch among several GPUs; its other attributes are
    those of the network, also to be set."""

    def __getattr__(self, name: str):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__('module'), name)

    def __setattr__(self, name: str, value) -> None:
        module = vars(self).get('_modules', {}).get('module')
        if module is not None and name not in vars(self) and hasattr(module, name):    # a new classifier, say
            setattr(module, name, value)
        else:
            super().__setattr__(name, value)


def make_dp(net: torch.nn.Module) -> CustomDP:
    """The network on all GPUs that there are; without any, as it is on the CPU."""
    return CustomDP(net.cuda() if torch.cuda.is_available() else net)
