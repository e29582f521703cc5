"""The commands of `python -m scroll`, each with its arguments; `scroll.__main__` has the list."""
