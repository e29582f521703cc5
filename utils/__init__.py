"""What files written for Mammoth import from `utils`; other names come from the user's checkout."""
from core.arguments import binary_to_boolean_type, custom_str_underscore, none_or_float  # noqa: F401


def to_parsable_obj(value):
    """The same as what JSON knows: dicts with text keys, lists, numbers, texts, True, False and None."""
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    if isinstance(value, dict):
        return {str(k): to_parsable_obj(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [to_parsable_obj(v) for v in value]
    if hasattr(value, 'tolist'):                            # arrays, tensors and their scalars
        return to_parsable_obj(value.tolist())
    return to_parsable_obj(vars(value)) if type(value).__name__ == 'Namespace' else str(value)
