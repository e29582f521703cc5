"""The public place of `scroll.learners.grid_learner`, for one version more."""

from scroll.learners.grid_learner import *  # noqa: F403 (all its public names)
