"""What tests of several methods share: a data set that takes no time."""
import numpy as np
import pytest

from datasets.utils import readers, scheduled_dataset


@pytest.fixture
def few_digits(monkeypatch):
    """The first 8 training and 4 test images of each digit: enough for what holds of any data."""
    whole = readers.digits()

    def some(labels, count):
        return np.sort(np.concatenate([np.flatnonzero(labels == c)[:count] for c in range(10)]))
    train_ids, test_ids = some(whole.train_labels, 8), some(whole.test_labels, 4)
    few = readers.Images(whole.train[train_ids], whole.train_labels[train_ids], whole.test[test_ids], whole.test_labels[test_ids],
                         whole.class_names)
    monkeypatch.setattr(readers, 'digits', lambda: readers.Images(*(np.copy(a) for a in few[:4]), few.class_names))
    scheduled_dataset._read_once.cache_clear()
    yield
    scheduled_dataset._read_once.cache_clear()
