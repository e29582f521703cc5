"""What follows from a state and settings: f_T, and what it says of samples that it was made from."""
import copy
import warnings
from dataclasses import dataclass, fields, replace

import numpy as np

from scroll.errors import InputError
from scroll.exemplars import Exemplars
from scroll.heads.predictors import LinearPredictor
from scroll.heads.registry import HEADS, Settings, choose_head, lift_of
from scroll.settings import AUTO, check_settings
from scroll.state import State
from scroll.statistics import Statistics

_UNEVEN = 1000          # times the samples of the rarest class


@dataclass(frozen=True)
class Derived:
    """f_T (`online`), the statistics that it was made of (`counted`), head and settings in numbers."""
    online: LinearPredictor
    counted: Statistics
    settings: Settings
    head: str

    def ridge_lambda(self) -> float | None:
        """The number used, rounded to a multiple of 2^-36; None where the head has none."""
        return self.settings.ridge_lambda if HEADS[self.head].sums_for_lambda else None

    def left_out(self, exemplars: Exemplars) -> np.ndarray:
        """Logits float64 (m, K) on learned samples as if each had not been."""
        return HEADS[self.head].left_out(self.online, self.counted, self.settings, exemplars.features,
                                         exemplars.labels)

    def without_held_out(self, exemplars: Exemplars, held: np.ndarray) -> tuple:
        """(f_T without the samples at these positions, its leave-one-out logits on the others)."""
        counted = copy.copy(self.counted).remove(exemplars.features[held], exemplars.labels[held])
        rest = np.setdiff1d(np.arange(len(exemplars)), held)
        out = replace(self, online=HEADS[self.head].make(counted, self.settings), counted=counted)
        return out.online, out.left_out(exemplars.at(rest))


def derive(values: dict, state: State) -> Derived:
    """f_T of a state; values: all of `scroll.settings.SETTINGS`."""
    check_settings(values)
    settings = Settings(**{field.name: values[field.name] for field in fields(Settings)})
    counted, head = state.statistics, values['head']
    if head == AUTO:
        held = exemplars_of(state, 'head auto')
        head, counted = choose_head(counted, settings, held.features, held.labels)
    own, lift = state.statistics, lift_of(values, state.statistics.dim)
    if HEADS[head].by_class and not own.by_class or lift != own.lift:
        raise InputError(f'head {values["head"]} with lift {lift}: the samples were counted with lift '
                         f'{own.lift}' + ' for each class' * own.by_class +
                         ', and another head needs other sums: learn again')
    _warn_of_uneven_classes(counted, head)
    settings = HEADS[head].settled(counted, settings)
    return Derived(HEADS[head].make(counted, settings), counted, settings, head)


def exemplars_of(state: State, what: str) -> Exemplars:
    """What the buffer keeps; InputError where there is none."""
    if state.buffer is None:
        raise InputError(f'{what} needs a buffer: buffer_size is 0' + (
            ', use f_T or adaptation mode none' if what == 'adaptation' else ''))
    return state.buffer.content()


def _warn_of_uneven_classes(statistics: Statistics, head: str) -> None:
    """UserWarning where ridge would find a rare class hardly ever."""
    counts = statistics.counts
    if head in ('ridge', 'rp', 'rff') and len(counts) > 1 and counts.max() >= _UNEVEN * counts.min():
        warnings.warn(f'a class has {_UNEVEN} times the samples of another, or more: head={head!r} hardly '
                      "ever finds the rare one; head='balanced' counts each class alike", stacklevel=6)
