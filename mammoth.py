"""`import mammoth`, as notebooks written for Mammoth say it: `bench`, with its names."""

from bench import *
from bench import __all__
