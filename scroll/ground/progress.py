"""Progress of the stages of a run on stderr: a bar on a terminal; elsewhere, as in a log file, a
line every few seconds."""

import sys
import time
from typing import Any

EVERY = 10.0  # seconds between lines, whatever their stages


class _Log:
    """File that writes a line to stderr where the last one is long enough ago, and drops others."""

    written = time.monotonic()

    def write(self, text: str) -> None:
        """Write the state of a bar."""
        line = text.strip()
        now = time.monotonic()
        if line and now >= _Log.written + EVERY:
            _Log.written = now
            print(line, file=sys.stderr, flush=True)

    def flush(self) -> None:
        """Do nothing: each line is flushed."""


def track(
    stage: str, items=None, total: int | None = None, done: int = 0, quiet: bool = False
) -> Any:
    """Make a bar of `tqdm`: iterate over it, or use it as a context and call its `update(count)`.

    Args:
        stage: its name.
        items: what to iterate over.
        total: number of its steps, samples, ...; None: that of the items, or unknown.
        done: number of them that are done before it begins.
        quiet: print nothing."""
    from tqdm import tqdm

    tqdm.monitor_interval = 0  # no thread of its own
    screen = sys.stderr is not None and sys.stderr.isatty()
    log = {} if screen else {'file': _Log(), 'position': 0}
    return tqdm(
        items,
        stage,
        total,
        leave=False,
        miniters=1,
        disable=quiet or sys.stderr is None,
        initial=done,
        **log,
    )
