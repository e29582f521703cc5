"""The public place of `scroll.sums.lift`, for one version more."""

from scroll.sums.lift import *  # noqa: F403 (all its public names)
