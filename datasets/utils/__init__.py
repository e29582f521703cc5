"""Foundations of data-set files."""

from datasets.utils.defaults import set_default_from_args

__all__ = ['set_default_from_args']
