"""The public place of `scroll.sums.exemplars`, for one version more."""

from scroll.sums.exemplars import *
