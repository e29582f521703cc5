"""What methods share. Nothing here imports `models` or `datasets`."""


def binary_to_boolean_type(value) -> bool:
    """Command-line type of an on/off flag: true/1/t/y/yes or false/0/f/n/no, in any case."""
    import argparse
    text = str(value).lower()
    if text in ('true', '1', 't', 'y', 'yes'):
        return True
    if text in ('false', '0', 'f', 'n', 'no'):
        return False
    raise argparse.ArgumentTypeError(f'{value!r}: expected 0 or 1')


def none_or_float(value):
    """Command-line type of a number that may be absent: `None` or a float."""
    return None if str(value) == 'None' else float(value)
