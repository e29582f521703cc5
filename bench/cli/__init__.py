"""The command line: flags, how a run's arguments are put together, what is refused."""
