"""The commands of `python -m scroll`, each with its arguments; `scroll.__main__` has the list."""

import os

# before torch is imported: its threads (GNU OpenMP's) busily wait for each other for milliseconds,
# also for one whose core another process holds, and keep that process from ending its turn
if 'OMP_WAIT_POLICY' not in os.environ:
    os.environ.setdefault('GOMP_SPINCOUNT', '5000')  # some tenths of a millisecond
