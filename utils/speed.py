"""Faster, at a price: coarser products, a compiled network, several GPUs."""
import torch

from utils.errors import UserError

_PRECISION = ('highest', 'high', 'medium', 'medium')


def optimise(net, level: int) -> None:
    """`-O`: 1 lets float32 products use TF32, 2 bfloat16; 3 also compiles the network. Results change in their last bits."""
    torch.set_float32_matmul_precision(_PRECISION[level])
    if level == 3:
        try:
            torch.compile(lambda x: x + 1)(torch.zeros(2, device=next(net.parameters()).device))
        except Exception as error:          # whatever the compilers of this machine say
            raise UserError(f'-O 3: torch.compile does not work on this machine ({type(error).__name__}: {error}); '
                            'use -O 2') from error
        net.compile()


class SplitAmongGPUs(torch.nn.DataParallel):
    """A network that splits each batch among several GPUs; its other attributes are those of the network."""

    def __getattr__(self, name: str):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__('module'), name)


def split_among_gpus(model, devices: list) -> None:
    """`--distributed dp`: let each batch that the method gives to its network be split among these devices.

    Raises:
        UserError: there is one device only, or the method trains no network.
    """
    if len(devices) < 2:
        raise UserError(f'--distributed dp: needs two CUDA devices or more, here there is {devices[0]}; leave the flag out')
    if model.opt is None:
        raise UserError(f'--distributed dp has no effect on --model {model.NAME}: it trains no network')
    model.net = SplitAmongGPUs(model.net, [device.index for device in devices])
