"""Statistics files, files of features and of images: read, checked, learned from."""
