"""All gradients of a network as one vector."""
import torch


def read_gradients(net: torch.nn.Module) -> torch.Tensor:
    """(P,): gradients of all parameters in a row, zeros for those that have none."""
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1)
                      for p in net.parameters()])


def write_gradients(net: torch.nn.Module, values: torch.Tensor) -> None:
    """Replace the gradients of all parameters; the inverse of `read_gradients`."""
    parameters = list(net.parameters())
    for p, part in zip(parameters, values.split([p.numel() for p in parameters])):
        p.grad = part.view_as(p).clone()
