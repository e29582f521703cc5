"""Heads made of the sums: nearest centroids, ridge regression, discriminants; lambda, scale, and
correctly rounded solutions.
"""
