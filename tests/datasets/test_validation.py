"""The validation split that older data-set files make themselves."""
import copy

import numpy as np
from torchvision import transforms

from datasets import get_dataset
from datasets.utils.validation import ValidationDataset, get_train_val


def test_a_share_of_each_class_is_set_aside_and_the_data_stay_whole(arguments):
    get_dataset(arguments('picture-digits'))
    from datasets.foreign_pictures import Digits
    train = Digits(True, transforms.ToTensor())
    before = copy.deepcopy(train.targets)
    rest, held = get_train_val(train, transforms.ToTensor(), 'picture-digits', 0.25)
    assert isinstance(held, ValidationDataset) and np.bincount(held.targets).tolist() == [3] * 10
    assert np.bincount(rest.targets).tolist() == [9] * 10 and train.targets == before and len(train.data) == 120
    image, label = held[4]
    assert image.shape == (3, 8, 8) and label == held.targets[4] and isinstance(rest[0][2].sum().item(), float)
    again = get_train_val(train, None, 'picture-digits', 0.25)[1]
    np.testing.assert_array_equal(held.data, again.data)
    assert (get_train_val(train, None, 'another', 0.25)[1].data != held.data).any()


def test_a_file_that_splits_itself_is_not_split_again(arguments, monkeypatch):
    dataset = get_dataset(arguments('picture-digits', validation=50))
    import datasets.foreign_pictures as file
    real = file.store_masked_loaders

    def store(train, test, setting):
        return real(*get_train_val(train, dataset.TEST_TRANSFORM, 'picture-digits', 0.25), setting)
    monkeypatch.setattr(file, 'store_masked_loaders', store)
    train, test = dataset.get_data_loaders()
    assert (len(train.dataset), len(test.dataset)) == (18, 6) and next(iter(test))[0].shape == (6, 3, 8, 8)
