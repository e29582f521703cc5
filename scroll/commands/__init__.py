"""The commands of `python -m scroll`, each with its arguments; `scroll.__main__` has the list."""

import os

# before torch is imported: its threads (GNU OpenMP's) wait for each other busily for milliseconds,
# and so use up their turns on a core that another process holds; then all of them wait
if 'OMP_WAIT_POLICY' not in os.environ:
    os.environ.setdefault('GOMP_SPINCOUNT', '5000')  # some tenths of a millisecond
