"""What is kept of a stream, exact: lifted features, their sums, parts, learned keys, exemplars."""
