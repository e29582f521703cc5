"""The public place of `scroll.streams.schedules`, for one version more."""

from scroll.streams.schedules import *  # noqa: F403 (all its public names)
