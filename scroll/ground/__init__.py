"""What every room stands on: errors, arguments, the grid, labels, tables, files, progress, settings."""
