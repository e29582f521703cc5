"""Foundation of all rooms: errors, arguments, grid, labels, tables, files, progress, settings."""
