"""Worked examples, each a command: `python -m examples.five_sites FOLDER`."""
