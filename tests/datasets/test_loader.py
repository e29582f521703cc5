"""Batches: every sample once, never across a segment's end, the same images raw or not."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from datasets.utils.loader import ImageLoader, InMemoryDataset
from tests.conftest import quick


def numbered(count: int, transform=None, train: bool = True) -> InMemoryDataset:
    """Sample i: label i, an image whose values are i % 256 and up."""
    data = (np.arange(count)[:, None, None, None] + np.arange(12).reshape(2, 2, 3)).astype(np.uint8)
    return InMemoryDataset(data, torch.arange(count), transform or (lambda x: x * 2), train)


def labels_of(loader) -> list:
    return [batch[1].tolist() for batch in loader]


@st.composite
def loaders(draw):
    lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
    ends = None if len(lengths) == 1 and draw(st.booleans()) else np.cumsum(lengths)
    loader = ImageLoader(
        numbered(sum(lengths)),
        draw(st.integers(1, 15)),
        draw(st.booleans()),
        ends,
        draw(st.booleans()),
        seed=draw(st.integers(0, 5)),
    )
    loader.raw = draw(st.booleans())
    return loader, lengths


@quick
@given(loaders())
def test_batches_are_as_many_as_promised_and_stay_within_segments(loader_and_lengths):
    loader, lengths = loader_and_lengths
    batches = labels_of(loader)
    assert len(batches) == len(loader)
    segment = np.repeat(np.arange(len(lengths)), lengths)
    assert all(len(set(segment[batch].tolist())) == 1 for batch in batches)
    order = [segment[batch[0]] for batch in batches]
    assert order == sorted(order)
    seen = [i for batch in batches for i in batch]
    assert len(seen) == len(set(seen))
    size = loader.batch_size
    if loader.drop_last:
        assert all(len(batch) == size for batch in batches)
        assert len(seen) == sum(n // size * size for n in lengths)
    else:
        joined = sum(size > 1 and n > size and n % size == 1 for n in lengths)
        assert len(seen) == sum(lengths)
        assert all(len(batch) <= size + 1 for batch in batches)
        assert sum(len(batch) > size for batch in batches) == joined
        assert len(loader) == sum(-(-n // size) for n in lengths) - joined
    if not loader.shuffle and not loader.drop_last:
        assert seen == list(range(sum(lengths)))


@quick
@given(loaders())
def test_raw_batches_are_the_same_images_in_the_same_order(loader_and_lengths):
    loader, _ = loader_and_lengths
    twin = copy.deepcopy(loader)
    loader.raw = False
    twin.raw = True
    for (inputs, labels, plain), (raw, raw_labels, again) in zip(loader, twin, strict=True):
        assert torch.equal(labels, raw_labels)
        assert raw is again
        assert raw.dtype == torch.uint8
        assert torch.equal(raw.permute(0, 3, 1, 2).float() / 255, plain)
        assert torch.equal(inputs, plain * 2)
        assert raw[:, 0, 0, 0].tolist() == [y % 256 for y in labels.tolist()]


def test_every_pass_has_its_own_shuffle_and_the_seed_decides():
    first, twin, other = (ImageLoader(numbered(50), 8, shuffle=True, seed=s) for s in (1, 1, 2))
    a = labels_of(first)
    b = labels_of(first)
    assert a != b
    assert [a, b] == [labels_of(twin), labels_of(twin)]
    assert a != labels_of(other)


def test_test_batches_are_pairs_raw_or_not():
    loader = ImageLoader(numbered(5, transform=lambda raw: raw.float(), train=False), 2)
    assert [tuple(len(x) for x in batch) for batch in loader] == [(2, 2), (2, 2), (1, 1)]
    normal = torch.cat([x for x, _ in loader])
    loader.raw = True
    raw = [x for x, _ in loader]
    assert torch.equal(torch.cat(raw).float(), normal)
    assert raw[0].dtype == torch.uint8
    assert raw[0].data_ptr() == next(iter(loader))[0].data_ptr()  # the same memory each time


REPLACED = {  # data of another length: as iCaRL and GEM reassign them; the shape of an image
    'fewer': (np.full((3, 2, 2, 3), 51, np.uint8), (3, 2, 2)),
    'as many, a tensor': (torch.full((10, 2, 2, 3), 51, dtype=torch.uint8), (3, 2, 2)),
    'more, grey': (np.full((25, 5, 5), 51, np.uint8), (1, 5, 5)),
    'real numbers': (torch.full((6, 3, 2, 2), 0.2), (3, 2, 2)),
}


@pytest.mark.parametrize('targets', [list, np.array, torch.tensor])
@pytest.mark.parametrize('kind', REPLACED)
def test_images_and_labels_of_any_kind_and_number_may_take_their_place(kind, targets):
    loader = ImageLoader(numbered(10), 4, shuffle=True, segment_ends=[4, 10])
    images, shape = REPLACED[kind]
    assert sum(map(len, labels_of(loader))) == 10
    loader.dataset.data = images
    loader.dataset.targets = targets(list(range(len(images))))
    for loader.raw in (True, False):
        batches = list(loader)
        assert len(batches) == len(loader)
        assert batches[0][1].dtype == torch.int64
        assert sorted(i for batch in batches for i in batch[1].tolist()) == list(range(len(images)))
    plain = torch.cat([batch[2] for batch in batches])
    assert plain.shape[1:] == shape
    assert torch.allclose(plain, torch.full_like(plain, 0.2))
    assert torch.equal(torch.cat([batch[0] for batch in batches]), plain * 2)
    assert len(loader.dataset) == len(images)
