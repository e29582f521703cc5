"""What a user holds: states, learners, estimators in the manner of scikit-learn."""
