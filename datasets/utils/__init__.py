"""What data-set files build on."""

from datasets.utils.defaults import set_default_from_args

__all__ = ['set_default_from_args']
