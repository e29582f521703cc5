"""Peak memory in MB of learning from a stream of feature vectors, 512 wide:
after a tenth of it, and at its end."""
import sys
from pathlib import Path

import numpy as np

from scroll.grid import quantise
from scroll.learner import Scroll

DIM, SEGMENT, CLASSES = 512, 2000, 100


def main(count: int) -> tuple:
    """Segments of the same features, each time with other labels."""
    features = quantise(np.random.default_rng(0).normal(size=(SEGMENT, DIM)))
    learner = Scroll(buffer_size=500)
    for segment in range(max(10, count // SEGMENT)):
        keys = np.arange(SEGMENT, dtype=np.uint64) + np.uint64(segment * SEGMENT)
        learner.learn(features, features, keys, (np.arange(SEGMENT) + segment) % CLASSES)
        if segment == max(10, count // SEGMENT) // 10 - 1:
            learner.predictor()
            early = peak()
    learner.predictor()
    return early, peak()


def peak() -> float:
    """Largest resident memory so far, of Linux; `resource` would count the process that started this one."""
    status = dict(line.split(':', 1) for line in Path('/proc/self/status').read_text().splitlines())
    return int(status['VmHWM'].split()[0]) / 1024


if __name__ == '__main__':
    print(*main(int(sys.argv[1])))
