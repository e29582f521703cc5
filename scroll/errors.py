"""The public place of `scroll.ground.errors`, for one version more."""

from scroll.ground.errors import *  # noqa: F403 (all its public names)
