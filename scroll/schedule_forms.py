"""The public place of `scroll.streams.schedule_forms`, for one version more."""

from scroll.streams.schedule_forms import *  # noqa: F403 (all its public names)
