"""How far a stage of a run is, on stderr: a line that is kept up to date on a terminal; elsewhere, as in a
log file, a line every few seconds."""
import sys
import threading
import time

FIRST, EVERY, TICK = 4.0, 10.0, 0.5             # seconds: to the first line, between lines, between looks
_stages = []                                    # nested: the last one speaks
_told = time.monotonic() - EVERY + FIRST        # when a line was last written


class Progress:
    """A stage with a name: a context, or with `over` an iterator. A thread of its own speaks for it, so that
    one that reads or computes in one piece is shown as well.

    total: steps, samples, ... of it; None: unknown. done: of them before it begins. quiet: say nothing.
    """

    def __init__(self, stage: str, total: int = None, done: int = 0, quiet: bool = False):
        self.stage, self.total, self.done, self.first = stage, total, done, done
        self.quiet, self.note = quiet or sys.stderr is None, ''

    def __enter__(self):
        if not self.quiet:
            self.began, self.ended = time.monotonic(), threading.Event()
            _stages.append(self)
            self.thread = threading.Thread(target=self._speak, daemon=True)
            self.thread.start()
        return self

    def __exit__(self, *error):
        if not self.quiet:
            self.ended.set()
            self.thread.join()
            _stages.remove(self)

    def update(self, count: int = 1) -> None:
        """`count` more are done."""
        self.done += count

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
        screen, shown = sys.stderr.isatty(), False
        while not self.ended.wait(TICK):
            if _stages[-1] is not self:
                continue
            if screen:
                shown = True
                print(f'\r\x1b[K{self.line()}', end='', file=sys.stderr, flush=True)
            elif time.monotonic() >= _told + EVERY:
                _told = time.monotonic()
                print(self.line(), file=sys.stderr, flush=True)
        if shown:
            print('\r\x1b[K', end='', file=sys.stderr, flush=True)

    def line(self) -> str:
        """'Adapting: 40 of 300, 12 s, about 78 s left'."""
        seconds = time.monotonic() - self.began
        words = [f'{self.done}{f" of {self.total}" if self.total else ""}'] if self.done or self.total else []
        words += [span(seconds)]
        if self.total and self.first < self.done < self.total:
            words += [f'about {span(seconds * (self.total - self.done) / (self.done - self.first))} left']
        return f'{self.stage}: {", ".join(words + [self.note] * bool(self.note))}'


def span(seconds: float) -> str:
    """'45 s', '12 min', '3 h 05 min'."""
    if seconds < 90:
        return f'{seconds:.0f} s'
    hours, minutes = divmod(round(seconds / 60), 60)
    return f'{hours} h {minutes:02} min' if hours else f'{minutes} min'
