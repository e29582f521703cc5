"""How far a stage of a run is, on stderr: a line that is kept up to date on a terminal; elsewhere,
as in a log file, a line every few seconds."""

import sys
import time

FIRST, EVERY, TICK = 4.0, 10.0, 0.5  # seconds: to the first line, between lines, between updates
_stages = []  # under way, the innermost last
_told = time.monotonic() - EVERY + FIRST  # when a line was last written


class Progress:
    """A stage with a name: a context, or with `over` an iterator. total: steps, samples, ... of it;
    None: unknown. done: of them before it begins. quiet: say nothing."""

    def __init__(self, stage: str, total: int | None = None, done: int = 0, quiet: bool = False):
        self.stage, self.total, self.done, self.first = stage, total, done, done
        self.quiet, self.note, self.shown = quiet or sys.stderr is None, '', 0.0

    def __enter__(self):
        self.began = time.monotonic()
        _stages.append(self)
        self._speak()
        return self

    def __exit__(self, *error):
        _stages.remove(self)
        if self.shown:
            print('\r\x1b[K', end='', file=sys.stderr, flush=True)

    def update(self, count: int = 1) -> None:
        """`count` more are done."""
        self.done += count
        self._speak()

    def tell(self, **values: float) -> None:
        """Numbers to show with it."""
        self.note = ', '.join(f'{name}={value:.3g}' for name, value in values.items())

    def over(self, items):
        """Yield the items, within the stage; each is done when the next one is asked for."""
        with self:
            for item in items:
                yield item
                self.update()

    def _speak(self) -> None:
        global _told
        now, screen = time.monotonic(), not self.quiet and sys.stderr.isatty()
        if self.quiet or now < (self.shown + TICK if screen else _told + EVERY):
            return
        if screen:
            self.shown = now
            print(f'\r\x1b[K{self.line()}', end='', file=sys.stderr, flush=True)
        else:
            _told = now
            print(self.line(), file=sys.stderr, flush=True)

    def line(self) -> str:
        """'Adapting: 40 of 300, 12 s, about 78 s left', behind 'Schedules 2 of 9, ', whose step it
        is.
        """
        around = [
            f'{stage.stage} {stage.done} of {stage.total}, '
            for stage in _stages
            if stage.total and not stage.quiet and stage is not self
        ]
        seconds = time.monotonic() - self.began
        words = (
            [f'{self.done}{f" of {self.total}" if self.total else ""}']
            if self.done or self.total
            else []
        )
        words += [span(seconds)]
        if self.total and self.first < self.done < self.total:
            words += [
                f'about {span(seconds * (self.total - self.done) / (self.done - self.first))} left'
            ]
        return f'{"".join(around)}{self.stage}: {", ".join(words + [self.note] * bool(self.note))}'


def span(seconds: float) -> str:
    """'45 s', '12 min', '3 h 05 min'."""
    if seconds < 90:
        return f'{seconds:.0f} s'
    hours, minutes = divmod(round(seconds / 60), 60)
    return f'{hours} h {minutes:02} min' if hours else f'{minutes} min'
