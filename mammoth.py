"""`import mammoth`, as notebooks written for Mammoth say it: `bench`, with its names."""

from bench import *  # noqa: F403
from bench import __all__  # noqa: F401
