"""The public place of `scroll.sums.statistics`, for one version more."""

from scroll.sums.statistics import *  # noqa: F403 (all its public names)
