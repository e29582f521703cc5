"""Worked examples, each a command: `python -m examples.photographs FOLDER`."""
