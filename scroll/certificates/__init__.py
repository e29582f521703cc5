"""Many schedules of one data set: sums of prefixes, disparity between two of them."""
