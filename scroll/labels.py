"""The public place of `scroll.ground.labels`, for one version more."""

from scroll.ground.labels import *  # noqa: F403 (all its public names)
