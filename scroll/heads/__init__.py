"""Statistics to a predictor: nearest centroids and ridge regression, lambda, correctly rounded
solves.
"""
