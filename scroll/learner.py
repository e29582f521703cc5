"""The public place of `scroll.learners.learner`, for one version more."""

from scroll.learners.learner import *
