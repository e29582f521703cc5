"""The public place of `scroll.learners.estimators`, for one version more."""

from scroll.learners.estimators import *  # noqa: F403 (all its public names)
