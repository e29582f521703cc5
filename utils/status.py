"""A line on the terminal that tells how far an epoch has come."""
import sys


def progress_bar(i: int, max_iter: int, epoch: int, task_number, loss) -> None:
    """Draw the state after batch `i` (from 0) of `max_iter`, on stderr; where that is no
    terminal, only the last of an epoch.

    Args:
        epoch: from 0. task_number: from 0, or a name. loss: a number or a tensor, looked at only when it is
            drawn.
    """
    last = i + 1 >= max_iter
    if not last and (i % max(1, max_iter // 100) or not sys.stderr.isatty()):
        return
    task = task_number + 1 if isinstance(task_number, int) else task_number
    done = '#' * (20 * (i + 1) // max(1, max_iter))
    start, end = ('\r', '\n' if last else '') if sys.stderr.isatty() else ('', '\n')
    print(f'{start}Task {task} - Epoch {epoch + 1} [{done:.<20}] {i + 1}/{max_iter} loss {float(loss):.4f}',
          end=end, file=sys.stderr, flush=True)
