"""The public place of `scroll.ground.errors`, for one version more."""

from scroll.ground.errors import *
