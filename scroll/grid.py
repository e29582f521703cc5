"""The public place of `scroll.ground.grid`, for one version more."""

from scroll.ground.grid import *  # noqa: F403 (all its public names)
