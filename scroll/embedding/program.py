"""The program of a network: the calls of torch that make its output, with every constant that
enters them.

Networks of one program compute the same function. Weights, numbers in attributes, classes, closures
and configurations all reach the output through a call of torch, so the record of the calls holds
them; what never reaches it, and how the code is written, does not count. Three kinds of code cannot
be recorded, and are named instead: code that reads values of its input (to branch on them, or to
hand them to another library), that computes outside of torch's Python functions (TorchScript,
extensions), and that draws random numbers.
"""

import hashlib
from functools import cache

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from scroll.ground.grid import little_endian

# calls whose results have a shape that tells of the values in the input
_COUNTING = frozenset(
    ['nonzero', 'argwhere', 'masked_select', 'unique', 'unique_consecutive', 'bincount']
)
# calls whose results are no tensors and tell nothing of the values in one
_OF_SHAPES = """
    shape size dim ndim ndimension numel nelement stride storage_offset dtype device layout names
    __len__ element_size itemsize nbytes get_device is_contiguous is_floating_point is_complex
    is_signed is_same_size is_cpu is_cuda is_mps is_xpu is_meta is_sparse is_sparse_csr
    is_quantized is_mkldnn is_nested is_conj is_neg is_inference is_leaf is_shared is_pinned
    is_tensor requires_grad requires_grad_ grad grad_fn retains_grad result_type can_cast
    promote_types type __hash__ _version"""
_SHAPES = frozenset(_OF_SHAPES.split())
_PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type,
    type(None),
    type(Ellipsis),
    torch.dtype,
    torch.layout,
    torch.memory_format,
)


def built_in_images() -> tuple:
    """Two uint8 images (8, 8, 1): one of middle tones, one of black and white, which drives
    activations to their bounds."""
    ramp = np.arange(64, dtype=np.uint8).reshape(8, 8, 1)
    return ramp * np.uint8(37), np.where(ramp * np.uint8(11) & 4, 255, 0).astype(np.uint8)


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """The numbers of a tensor in little-endian order, row by row."""
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:  # which numpy lacks
        tensor = tensor.contiguous().view(torch.int16)
    return little_endian(tensor.numpy()).tobytes()


class ProgramRecorder(TorchFunctionMode):
    """Records the program of what runs in it on an input; for one run.

    example: the input. strides: whether constants are told apart by their place in memory, on which
    the last bits of floating-point products depend. contents: digests of constants that were
    recorded before, for further runs of one network.

    Attributes:
        calls: SHA-256 of the calls so far. unreadable: why the program cannot be known; empty if it
        can."""

    def __init__(self, example: torch.Tensor, strides: bool, contents: dict):
        super().__init__()
        self.unreadable = ''
        self._strides = strides
        self._contents = contents
        self.calls = hashlib.sha256()
        # by id; kept so that ids stay their own
        self._numbers = {}
        self._alive = []
        self._derived = set()  # storages that the input has reached
        self._number(example)
        self._derived.add(_place_of(example))

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = _name_of(func)
        if name == '__iter__':  # makes tensors later, outside of a call
            with self:
                return iter(args[0].unbind(0))
        call = [name, self._describe(name, [args, kwargs])]
        derived = any(self._is_derived(tensor) for tensor in _tensors([args, kwargs]))
        if derived and self._counts(name, args):
            self.unreadable = self.unreadable or f'the shape of a result tells of values ({name})'
        try:
            result = func(*args, **kwargs)
        except Exception as error:
            self.unreadable = self.unreadable or f'{name} fails ({type(error).__name__})'
            raise
        made = list(_tensors(result))
        for tensor in made:
            self._number(tensor)
            call.append(str(tensor.dtype))
            if derived:
                self._derived.add(_place_of(tensor))
        if result is None and derived and args and isinstance(args[0], torch.Tensor):
            self._derived.add(_place_of(args[0]))  # as `x[0] = y`
        if not made and result is not None and name not in _SHAPES:
            if derived:
                self.unreadable = self.unreadable or f'it reads values of its input ({name})'
            else:
                call.append(self._describe(name, result))
        self.calls.update(repr(call).encode())
        return result

    def _counts(self, name: str, args) -> bool:
        if name in ('__getitem__', 'repeat_interleave'):  # by a mask, or by counts
            return any(
                part.dtype in (torch.bool, torch.uint8) or name != '__getitem__'
                for part in _tensors(list(args[1:]))
                if self._is_derived(part)
            )
        return name in _COUNTING

    def _describe(self, name: str, value) -> str:
        if isinstance(value, torch.Tensor):
            return self._describe_tensor(value)
        if isinstance(value, (list, tuple, range)):
            return f'[{", ".join(self._describe(name, part) for part in value)}]'
        if isinstance(value, dict):
            return self._describe(name, [part for item in value.items() for part in item])
        if isinstance(value, slice):
            return self._describe(name, ['slice', value.start, value.stop, value.step])
        if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
            content = hashlib.sha256(little_endian(np.asarray(value)).tobytes()).hexdigest()
            return f'{value.dtype} {value.shape} {content}'
        if isinstance(value, torch.device) or value in ('cpu', 'cuda'):
            return 'device'  # the program is the same on each
        if isinstance(value, _PLAIN):
            return repr(value)
        self.unreadable = self.unreadable or f'{name} takes a value of type {type(value).__name__}'
        return ''

    def _describe_tensor(self, tensor: torch.Tensor) -> str:
        if id(tensor) in self._numbers:
            return f'#{self._numbers[id(tensor)]}'
        self._number(tensor)
        try:
            place = tensor.stride() if self._strides else ''
            return f'{tensor.dtype} {tuple(tensor.shape)} {place} {self._content(tensor)}'
        except (RuntimeError, TypeError, NotImplementedError) as error:
            self.unreadable = self.unreadable or f'a constant cannot be read ({error})'
            return ''

    def _content(self, tensor: torch.Tensor) -> str:
        if tensor.is_inference():  # made in this run; has no version
            return hashlib.sha256(tensor_bytes(tensor)).hexdigest()
        key = id(tensor), tensor._version  # another one after a change in place
        if key not in self._contents:
            self._contents[key] = tensor, hashlib.sha256(tensor_bytes(tensor)).hexdigest()
        return self._contents[key][1]

    def _number(self, tensor: torch.Tensor) -> None:
        """Give a tensor the next number, also one that has a number already: whether a call returns
        its argument may depend on the device."""
        self._numbers[id(tensor)] = len(self._alive)
        self._alive.append(tensor)

    def _is_derived(self, tensor: torch.Tensor) -> bool:
        return _place_of(tensor) in self._derived


def identify_program(run, inputs: list[torch.Tensor], strides: bool) -> tuple:
    """(digest of the program of a network, or ''; why it cannot be known; features of the inputs).

    run: input (1, C, S, S) -> features (1, d). inputs: some of these; values that leave torch come
    back as constants, which then differ between inputs. strides: see `ProgramRecorder`."""
    contents = {}
    digests = set()
    features = []
    with ProgramRecorder(inputs[0], strides, contents):
        first = run(inputs[0])  # some networks keep what they compute once
    for example in inputs:
        recorder = ProgramRecorder(example, strides, contents)
        with recorder:
            features.append(run(example))
        if recorder.unreadable:
            return '', recorder.unreadable, features
        digests.add(recorder.calls.hexdigest())
    reason = ''
    if len(digests) > 1:
        reason = 'it computes outside of the functions of torch, or something else of each image'
    elif tensor_bytes(first) != tensor_bytes(features[0]):
        reason = 'it gives one image other features each time'
    elif not _are_near(torch.cat(features), run(torch.cat(inputs))):
        reason = 'features of an image depend on the batch'
    return '' if reason else digests.pop(), reason, features


def _are_near(alone: torch.Tensor, together: torch.Tensor) -> bool:
    """Return whether features of images alone and in a batch differ by rounding only."""
    slack = 1e-3 * float(alone.abs().nan_to_num(0, 0, 0).max())
    return torch.allclose(together, alone, rtol=1e-3, atol=slack, equal_nan=True)


def _tensors(value):
    """Yield the tensors in a value, also in lists and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _place_of(tensor: torch.Tensor) -> int:
    """The address of a tensor's storage; of one without, its id."""
    try:
        return tensor.untyped_storage().data_ptr() or id(tensor)
    except (RuntimeError, NotImplementedError):
        return id(tensor)


@cache
def _name_of(func) -> str:
    """'conv2d'; 'shape' of the getter of a property."""
    name = getattr(func, '__name__', type(func).__name__)
    if isinstance(func, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(func)  # with its namespace
    if name in ('__get__', '__set__', '__delete__'):
        owner = func.__self__
        inner = getattr(owner, '__name__', '') or owner.fget.__name__
        return inner if name == '__get__' else f'{name} {inner}'
    return name
