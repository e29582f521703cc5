"""Sentences for text encoders, by kind of picture: a class name replaces {}.

The sentences are our own, not many; published lists (Radford et al. 2021) are longer, and
zero-shot accuracies differ by a little.
"""
from core.environment import warn_once

_OBJECTS = (
    'a photo of a {}.', 'a photo of the {}.', 'a picture that shows a {}.', 'a close-up of a {}.',
    'a small photo of a {}.',
    'a large photo of a {}.', 'a blurred photo of a {}.', 'a dark photo of a {}.', 'a bright photo of a {}.',
    'a cropped photo of a {}.', 'a photo of one {}.', 'a photo of several {}.')
_ART = (
    'a drawing of a {}.', 'a painting of a {}.', 'a sketch of a {}.', 'a cartoon of a {}.',
    'a sculpture of a {}.',
    'an embroidered {}.', 'an origami {}.', 'a toy in the form of a {}.', 'a {} in a video game.',
    'a tattoo of a {}.')
_SATELLITE = (
    'a satellite image of {}.', 'an aerial photo of {}.', '{} seen from above.',
    'a picture of {} taken from an aeroplane.')


def _of(kind: str) -> tuple:
    return (f'a photo of a {{}}, a kind of {kind}.', f'a close-up of a {{}}, a kind of {kind}.',
            f'a photo of the {kind} {{}}.')


class _Templates(dict):
    """Any other key has the sentences for objects; the first time, that is said."""

    def __missing__(self, key: str) -> list:
        warn_once(f'utils.prompt_templates has no sentences for {key!r}: those for photos of objects are '
                  'used')
        return list(_OBJECTS)


templates = _Templates({name: list(sentences) for names, sentences in (
    (('imagenet', 'cifar10', 'cifar100', 'tinyimg', 'miniimg', '8vision', 'caltech101'), _OBJECTS),
    (('imagenet-r', 'imagenet_r'), _OBJECTS + _ART),
    (('cub200',), _of('bird')), (('cars196',), _of('car')), (('flowers102',), _of('flower')),
    (('food101',), _of('food')),
    (('cropdisease',), ('a photo of a leaf with {}.', 'a leaf of a plant: {}.', 'a close-up of a leaf, {}.')),
    (('eurosat', 'eurosat-rgb', 'eurosat_rgb', 'resisc45'), _SATELLITE),
    (('chestx',), ('a chest X-ray that shows {}.', 'an X-ray of the lungs of a patient with {}.')),
    (('isic',), ('a photo of a skin lesion: {}.', 'a dermatoscopic image of {}.')),
    (('mit67', 'sun397'), ('a photo of a {}.', 'a photo of the inside of a {}.', 'a photo taken in a {}.')),
    (('dtd',), ('a photo of a {} texture.', 'a close-up of a {} surface.', 'a {} pattern.')),
    (('gtsrb',), ('a photo of a traffic sign: {}.', 'a close-up of the traffic sign "{}".')),
    (('svhn', 'mnist'), ('a photo of the number {}.', 'the digit {}.', 'a house number: {}.')),
    (('celeba',), ('a photo of a face: {}.', 'a portrait of a person, {}.')),
) for name in names})
