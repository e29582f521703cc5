"""Images to integers: preprocessing, the integer network, the embedder with its feature cache."""
