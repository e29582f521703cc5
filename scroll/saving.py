"""A learner as nested arrays, as a file, and as what others deploy."""
import os
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from scroll import archive
from scroll.errors import InputError
from scroll.state import State

if TYPE_CHECKING:
    from scroll.embedding.embedder import Embedder

Learner = TypeVar('Learner', bound='Savable')


class Savable:
    """The part of `Scroll` that writes and reads what was learned."""

    _stamps = {}                        # path -> digest of the file that was read or written there last

    def end_part(self: Learner) -> Learner:
        """What has been learned is a part by itself (`scroll.files.parts`); what will be is another."""
        return self._set_origin(self._state().known_parts())

    def state_dict(self) -> dict:
        """All that was learned, as nested dicts of arrays and numbers: statistics, buffer, keys. f* is not
        kept, only whether there is one: it is made again from them, bit by bit the same."""
        if self._known is None:
            return {}
        state = self._known.state
        parts = dict(statistics=state.statistics, buffer=state.buffer, keys=state.keys)
        return {name: None if part is None else part.state_dict() for name, part in parts.items()} | \
            dict(adapted=self._known.adapted is not None, names=state.names, precision=state.precision)

    def load_state_dict(self, state: dict) -> None:
        """Become what `state_dict` described, for a learner made with the same arguments and backbone."""
        if not state:
            self.forget()
            return
        new = self._begun(self.dim_of(state['statistics']['sums'].shape[1] - 1))
        for name, part in dict(statistics=new.statistics, buffer=new.buffer, keys=new.keys).items():
            if part is not None:
                part.load_state_dict(state[name])
        more = {name: state[name] for name in ('names', 'precision') if name in state}
        self.take(replace(new, **more))
        if state['adapted']:
            self.adapt()

    def save(self, path) -> None:
        """Write settings, statistics and buffer, but neither backbone nor f*, to `path`, whole or not at all.

        Raises:
            InputError: nothing was learned yet, the file cannot be written, or another process has written it
                since this learner was loaded from it.
        """
        self._learned()
        with archive.locked(path):
            archive.check_unchanged(path, self._stamps.get(os.path.realpath(path)))
            self.end_part()
            self._stamps = {**self._stamps, os.path.realpath(path): self._state().write(path)}

    def export(self, folder, formats=('safetensors', 'torch'), **about) -> None:
        """Write f_T, and f* where there is one, to a new folder, with a certificate.

        Args:
            formats: of 'safetensors', 'torch' and 'onnx'. about: image_shape, names of classes, and the
                command that makes the statistics again (`scroll.export.folders.export`).

        Raises:
            InputError: nothing was learned, the folder is there or cannot be written, or packages are
                missing.
        """
        from scroll.export.folders import export
        export(self, folder, formats, **about)

    @classmethod
    def load(cls: type[Learner], path, embedder: 'Embedder' = None) -> Learner:
        """The learner that `save` wrote, to go on as if it had never stopped (f*: `adapt` again).

        Args:
            embedder: the backbone, as when the file was written; None for features of one's own.

        Raises:
            InputError: there is no such file, it is damaged or something else, or the backbone is another.
        """
        stamp, state = archive.stamp_of(path), State.read(path)
        try:
            out = cls(embedder, **state.params)
        except TypeError as error:
            raise InputError(f'{path}: damaged ({error})') from error
        out._check_params()
        if out._backbone() != state.psi:
            own, given = (digest[:16] or 'none, but features' for digest in (state.psi, out._backbone()))
            raise InputError(f'{path}: learned with another backbone ({own}) than is given ({given}): '
                             'weights, input, kind of machine and version of torch must be the same')
        out._stamps = {os.path.realpath(path): stamp}
        return out.take(state)
