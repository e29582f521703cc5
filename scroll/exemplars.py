"""The public place of `scroll.sums.exemplars`, for one version more."""

from scroll.sums.exemplars import *  # noqa: F403 (all its public names)
