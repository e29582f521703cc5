"""How far a stage of a run has come, on stderr: a bar on a terminal; anywhere else, as in
a log file, a line now and then."""
import sys
import threading
import time

# seconds: from the start of a stage, or of the process, to its first line; from any to the next
FIRST, EVERY = 4.0, 10.0
_SHORT = 1.0                    # a stage that is younger has nothing to say
_stages = []                    # those that go on, each within the one before it: the last one speaks
_told = time.monotonic() - EVERY + FIRST        # when a line was last written


class Progress:
    """A stage with a name: a context, or with `over` an iterator.

    A thread of its own speaks for it, so that a stage that reads, waits or
    computes in one piece is heard of as well.

    Args:
        stage: its name. total: steps, samples, ... that it has; None: not known. done: of them before it
            begins.
        quiet: say nothing (`--non_verbose 1`).
    """

    def __init__(self, stage: str, total: int = None, done: int = 0, quiet: bool = False):
        self.stage, self.total, self.done, self.first = stage, total, done, done
        self.quiet, self.note, self.bar = quiet or sys.stderr is None, '', None

    def __enter__(self):
        if self.quiet:
            return self
        self.began, self.ended = time.monotonic(), threading.Event()
        if sys.stderr.isatty():
            from tqdm import tqdm
            shown = '{desc} [{elapsed}]' if self.total is None else None
            self.bar = tqdm(total=self.total, desc=self.stage, initial=self.done, leave=False,
                            mininterval=0.5, delay=0.5, bar_format=shown)
        self.thread = threading.Thread(target=self._speak if self.bar is None else self._redraw, daemon=True)
        _stages.append(self)
        self.thread.start()
        return self

    def __exit__(self, *error):
        if self.quiet:
            return
        self.ended.set()
        self.thread.join()
        _stages.remove(self)
        if self.bar is not None:
            self.bar.close()

    def update(self, count: int = 1) -> None:
        """So many more are done."""
        self.done += count
        if self.bar is not None:
            self.bar.update(count)

    def tell(self, **values: float) -> None:
        """Numbers to show with it."""
        self.note = ', '.join(f'{name}={value:.3g}' for name, value in values.items())
        if self.bar is not None:
            self.bar.set_postfix_str(self.note, refresh=False)

    def over(self, items):
        """Yield the items, within the stage; each is done when the next one is asked for."""
        with self:
            for item in items:
                yield item
                self.update()

    def _redraw(self) -> None:
        while not self.ended.wait(1):
            if _stages[-1] is self:
                self.bar.refresh()

    def _speak(self) -> None:
        global _told
        due = min(self.began + FIRST, max(self.began + _SHORT, _told + EVERY))
        while not self.ended.wait(max(0.0, due - time.monotonic())):
            if _stages[-1] is self:
                _told = time.monotonic()
                print(self.line(), file=sys.stderr, flush=True)
            due = max(_told + EVERY, time.monotonic() + _SHORT)

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
