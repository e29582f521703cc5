"""SCROLL as a classifier of other libraries' streams."""
