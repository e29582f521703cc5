"""A data set as a stream: schedules and their forms."""
