"""ER: the mean over batch and replay; a buffer of plain images that does not depend on the
network.
"""

import numpy as np
import torch
from torch.nn import functional as F

from tests.models.conftest import batches, check_step, gradient, still, stored


def test_a_step_follows_the_mean_over_batch_and_all_that_is_replayed(start):
    model, dataset, _ = start('er', '--lr 0.5 --minibatch_size 99')  # more than there is: all of it
    first, batch, _ = batches(model, dataset)
    model.meta_observe(*first)
    inputs, labels = (torch.cat(parts) for parts in zip(batch[:2], stored(still(model))))
    assert len(labels) == 24
    expected = F.cross_entropy(model.net(inputs), labels)
    check_step(model, batch, expected, gradient(expected, model.net))


def test_several_updates_on_a_batch_draw_afresh_and_keep_its_samples_once(start):
    model, dataset, _ = start('er', '--lr 0.5 --batch_iterations 3')
    first, batch, _ = batches(model, dataset)
    model.meta_observe(*first)
    drawn = []
    replay = model.replay
    before = model.buffer.num_seen_examples
    model.replay = lambda: drawn.append(replay()) or drawn[-1]
    assert before == len(first[1])
    model.meta_observe(*batch)
    assert model.buffer.num_seen_examples == before + len(batch[1])
    assert model.task_iteration == 2
    assert len(drawn) == 3
    assert not torch.equal(drawn[0][0], drawn[1][0])


def test_it_keeps_training_images_as_they_are_in_the_files_under_their_labels(trained):
    model, dataset = trained('er')
    assert model.buffer.examples.dtype == torch.uint8
    assert len(model.buffer) == 40
    label_of = {
        image.tobytes(): int(label)
        for image, label in zip(dataset.images.train, dataset.train_labels)
    }
    labels = [label_of[image.tobytes()] for image in model.buffer.examples.numpy()]
    assert labels == model.buffer.labels.tolist()
    assert model.buffer.num_seen_examples == 80
    assert len(np.unique(model.buffer.labels)) > 5
