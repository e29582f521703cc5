"""A run that is stopped goes on where it stood, bit for bit; models as files."""
