"""Sums of a stream, exact: lifted features, their statistics, parts, learned keys, exemplars."""
