"""Transforms of images that data sets use."""
