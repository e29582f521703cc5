"""State and statistics files: written whole or not at all, read with care; merge, remove, unlearn."""
