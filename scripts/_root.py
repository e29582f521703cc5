"""Lets a command of this folder find the project, whatever folder it is called from."""
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)
