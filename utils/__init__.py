"""Names that files written for Mammoth import from `utils`; other names come from the user's
checkout.
"""

import json
from contextlib import suppress

from core.arguments import binary_to_boolean_type, custom_str_underscore, none_or_float
from core.mammoth import checkout, use_checkout
from scroll.ground.errors import InputError

if checkout() is None:
    with suppress(InputError):  # the command says it
        use_checkout()


def to_parsable_obj(value):
    """The same as what JSON knows: dicts with text keys, lists, numbers, texts, True, False and
    None.
    """

    def plain(value):
        if isinstance(value, set):
            return list(value)
        if hasattr(value, 'tolist'):  # arrays, tensors and their scalars
            return value.tolist()
        return vars(value) if type(value).__name__ == 'Namespace' else str(value)

    return json.loads(json.dumps(value, default=plain))
