"""Train a backbone and make its integer network."""

from pathlib import Path

from core.configs import read_yaml


def shared_classes() -> dict:
    """Stream -> wnid of a class of miniImageNet's training split -> what it is: the stream's class
    that it is of."""
    return read_yaml(Path(__file__).with_name('shared_classes.yaml'))
