"""The public place of `scroll.learners.learner`, for one version more."""

from scroll.learners.learner import *  # noqa: F403 (all its public names)
