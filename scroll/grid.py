"""The public place of `scroll.ground.grid`, for one version more."""

from scroll.ground.grid import *
