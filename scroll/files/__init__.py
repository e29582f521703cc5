"""Files of features and of images: read, checked, learned from."""
