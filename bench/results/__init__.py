"""Keys of results rows, forgetting, pictures."""
