"""Progress of a stage of a run on stderr: a line that is kept up to date on a terminal; elsewhere,
as in a log file, a line every few seconds."""

import sys
import time

FIRST = 4.0  # seconds to the first line
EVERY = 10.0  # seconds between lines
TICK = 0.5  # seconds between updates on a terminal
_stages = []  # under way, the innermost last
_told = time.monotonic() - EVERY + FIRST  # when a line was last written


class Progress:
    """A named stage: a context, or with `over` an iterator.

    stage: its name.
    total: number of its steps, samples, ...; None: unknown.
    done: number of them that are done before it begins.
    quiet: print nothing."""

    def __init__(self, stage: str, total: int | None = None, done: int = 0, quiet: bool = False):
        self.stage = stage
        self.total = total
        self.done = self.first = done
        self.quiet = quiet or sys.stderr is None
        self.note = ''
        self.shown = 0.0

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
        """Count `count` more as done."""
        self.done += count
        self._speak()

    def tell(self, **values: float) -> None:
        """Show these numbers with it."""
        self.note = ', '.join(f'{name}={value:.3g}' for name, value in values.items())

    def over(self, items):
        """Yield the items, within the stage; each is done when the next one is asked for."""
        with self:
            for item in items:
                yield item
                self.update()

    def _speak(self) -> None:
        global _told  # noqa: PLW0603 (stages share the time of the last line)
        if self.quiet:
            return
        now = time.monotonic()
        screen = sys.stderr.isatty()
        if now < (self.shown + TICK if screen else _told + EVERY):
            return
        if screen:
            self.shown = now
            print(f'\r\x1b[K{self.line()}', end='', file=sys.stderr, flush=True)
        else:
            _told = now
            print(self.line(), file=sys.stderr, flush=True)

    def line(self) -> str:
        """Return 'Adapting: 40 of 300, 12 s, about 78 s left', behind 'Schedules 2 of 9, ' if it is
        a step of that stage.
        """
        around = ''
        for stage in _stages:
            if stage.total and not stage.quiet and stage is not self:
                around += f'{stage.stage} {stage.done} of {stage.total}, '
        words = []
        if self.total:
            words.append(f'{self.done} of {self.total}')
        elif self.done:
            words.append(str(self.done))
        seconds = time.monotonic() - self.began
        words.append(span(seconds))
        if self.total and self.first < self.done < self.total:
            left = seconds * (self.total - self.done) / (self.done - self.first)
            words.append(f'about {span(left)} left')
        if self.note:
            words.append(self.note)
        return f'{around}{self.stage}: {", ".join(words)}'


def span(seconds: float) -> str:
    """Return '45 s', '12 min', '3 h 05 min'."""
    if seconds < 90:
        return f'{seconds:.0f} s'
    hours, minutes = divmod(round(seconds / 60), 60)
    return f'{hours} h {minutes:02} min' if hours else f'{minutes} min'
