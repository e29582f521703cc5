"""Learners as files for other programs."""
