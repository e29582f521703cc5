"""One run: what it is built of, the training loop, evaluation on the way."""
