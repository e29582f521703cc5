"""A learner as nested arrays, as a file, and as what others deploy."""
import copy
import os
from typing import TYPE_CHECKING, TypeVar

from scroll.errors import InputError
from scroll.io import files
from scroll.io.parts import Origin
from scroll.io.states import State

if TYPE_CHECKING:
    from scroll.embedding.embedder import Embedder

Learner = TypeVar('Learner', bound='Savable')


class Savable:
    """The part of `Scroll` that writes and reads what was learned."""

    _origin: Origin | None = None       # None: all that is known was learned here

    def _set_origin(self: Learner, parts: dict, **stamps: str) -> Learner:
        """What is known now is made of these parts; `stamps` as of `Origin`."""
        known = self._origin.stamps if self._origin else {}
        self._origin = Origin(parts, copy.copy(self.statistics_), known | stamps)
        return self

    def end_part(self: Learner) -> Learner:
        """What has been learned is a part by itself (`scroll.io.parts`); what will be is another."""
        return self._set_origin(self._state().known_parts())

    def state_dict(self) -> dict:
        """All that was learned, as nested dicts of arrays and numbers: statistics, buffer, keys. f* is not
        kept, only whether there is one: it is made again from them, bit by bit the same."""
        if not hasattr(self, 'statistics_'):
            return {}
        parts = dict(statistics=self.statistics_, buffer=self.buffer_, keys=self.keys_)
        return {name: None if part is None else part.state_dict() for name, part in parts.items()} | \
            dict(adapted=self.adapted_ is not None)

    def load_state_dict(self, state: dict) -> None:
        """Become what `state_dict` described, for a learner made with the same arguments and backbone."""
        self.forget()
        if not state:
            return
        self._begin(self.dim_of(state['statistics']['sums'].shape[1] - 1))
        self.statistics_.load_state_dict(state['statistics'])
        if self.buffer_ is not None:
            self.buffer_.load_state_dict(state['buffer'])
        if self.keys_ is not None:
            self.keys_.load_state_dict(state['keys'])
        self._changed()
        if state['adapted']:
            self.adapt()

    def save(self, path) -> None:
        """Write settings, statistics and buffer, but neither backbone nor f*, to `path`, whole or not at all.

        Raises:
            InputError: nothing was learned yet, the file cannot be written, or another process has written it
                since this learner was loaded from it.
        """
        self._check_begun()
        with files.locked(path):
            if self._origin is not None:
                self._origin.check_file(path)
            state = self._state()
            self._set_origin(state.known_parts(), **{os.path.realpath(path): state.write(path)})

    def export(self, folder, formats=('safetensors', 'torch'), **about) -> None:
        """Write f_T, and f* where there is one, to a new folder, with a model card and a certificate.

        Args:
            formats: of 'safetensors', 'torch' and 'onnx'. about: image_shape, names of classes, and the
                command that makes the statistics again (`scroll.io.export.export`).

        Raises:
            InputError: nothing was learned, the folder is there or cannot be written, or packages are
                missing.
        """
        from scroll.io.export import export
        export(self, folder, formats, **about)

    @classmethod
    def load(cls: type[Learner], path, embedder: 'Embedder' = None) -> Learner:
        """The learner that `save` wrote, to go on as if it had never stopped (f*: `adapt` again).

        Args:
            embedder: the backbone, as when the file was written; None for features of one's own.

        Raises:
            InputError: there is no such file, it is damaged or something else, or the backbone is another.
        """
        stamp, state = files.stamp_of(path), State.read(path)
        try:
            out = cls(embedder, **state.params)
        except TypeError as error:
            raise InputError(f'{path}: damaged ({error})') from error
        out._check_params()
        if out._backbone() != state.psi:
            own, given = (digest[:16] or 'none, but features' for digest in (state.psi, out._backbone()))
            raise InputError(f'{path}: learned with another backbone ({own}) than is given ({given}): '
                             'weights, input, kind of machine and version of torch must be the same')
        return out.take(state)._set_origin(state.parts, **{os.path.realpath(path): stamp})
