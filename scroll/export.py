"""The public place of `scroll.exports.tensors`, for one version more."""

from scroll.exports.tensors import *  # noqa: F403 (all its public names)
