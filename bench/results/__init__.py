"""What becomes of results rows: keys, forgetting, pictures."""
