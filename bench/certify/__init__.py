"""Many schedules of one data set, one digest: certificates."""
