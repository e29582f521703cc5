"""States, learners, estimators in the manner of scikit-learn."""
