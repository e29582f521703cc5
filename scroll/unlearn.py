"""The older name of `python -m scroll unlearn`."""
import sys

from scroll.__main__ import main

if __name__ == '__main__':
    sys.exit(main(['unlearn', *sys.argv[1:]]))
