"""The public place of `scroll.learners.state`, for one version more."""

from scroll.learners.state import *  # noqa: F403 (all its public names)
