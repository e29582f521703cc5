"""Encoded images: every kind of pixel gives the colours that a viewer shows, by hand; what is no
image is left out of a folder, and said."""

import io
import os
import shutil
import warnings

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from core.environment import warn_once
from datasets.utils import readers
from datasets.utils.image_files import read_images
from scroll.files.images import ImageFile, decode, decoders
from scroll.ground.errors import InputError
from tests.conftest import refused


@pytest.fixture(autouse=True)
def nothing_said_yet():
    warn_once.cache_clear()


def read_image(path, size):
    """Pixels of a file, which are those of its bytes in Parquet; both refuse what is no image."""
    if path.is_file():  # and no device
        parquet.write_table(
            pyarrow.table({'image': [path.read_bytes()], 'y': [0]}), f'{path}.parquet'
        )
        try:
            pixels = next(ImageFile(f'{path}.parquet', {}, ('X',)).blocks()).X[0]
        except InputError:
            with refused('not a readable image'):
                decode(path)
        else:
            np.testing.assert_array_equal(pixels, decode(path))
    return read_images([path], size)[0]


def grey(*values) -> list:
    return [[v] * 3 for v in values]


def saved(mode, values, suffix, **options):
    """Write a row of pixels of a mode with Pillow."""

    def write(path):
        image = Image.new(mode, (len(values), 1))
        image.putdata(values)
        image.save(path, **options)

    return suffix, write


def of_array(values, dtype, suffix, **options):
    return suffix, lambda path: Image.fromarray(np.array([values], dtype)).save(path, **options)


def write_palette(path):
    """Four pixels of a palette of red, green and blue, 0, 1, 2, 1, of which red is faint, and green
    clear.
    """
    image = Image.new('P', (4, 1))
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    image.putdata([0, 1, 2, 1])
    image.save(path, transparency=bytes([51, 0, 255]))


KINDS = {  # name -> ((suffix, write), expected colours of a row of pixels)
    'RGB': (saved('RGB', [(1, 2, 3), (250, 0, 9)], '.png'), [[1, 2, 3], [250, 0, 9]]),
    # over white: (a c + (255 - a) 255) / 255
    'LA': (
        saved('LA', [(100, 255), (100, 0), (0, 51), (55, 204)], '.png'),
        grey(100, 255, 204, 95),
    ),
    'RGBA': (
        saved('RGBA', [(9, 8, 7, 0), (9, 8, 7, 255), (0, 255, 55, 51)], '.png'),
        [[255] * 3, [9, 8, 7], [204, 255, 215]],
    ),
    'P': (('.png', write_palette), [[255, 204, 204], [255] * 3, [0, 0, 255], [255] * 3]),
    'L, one clear': (saved('L', [7, 8, 9], '.png', transparency=8), grey(7, 255, 9)),
    # 255 - c - k
    'CMYK': (
        saved('CMYK', [(0, 0, 0, 0), (255, 0, 0, 0), (0, 0, 0, 255), (10, 20, 30, 0)], '.tif'),
        [[255] * 3, [0, 255, 255], [0] * 3, [245, 235, 225]],
    ),
}


@pytest.mark.parametrize('kind', KINDS)
def test_every_kind_of_pixel(tmp_path, kind):
    (suffix, write), expected = KINDS[kind]
    path = tmp_path / f'x{suffix}'
    write(path)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        got = read_image(path, len(expected))
    # the row, made as high as it is wide
    assert got.dtype == np.uint8
    assert got.tolist() == [expected] * len(expected)


@pytest.mark.parametrize(
    'make',
    [
        of_array([0, 65535], np.uint16, '.png'),
        of_array([0, 0.5], np.float32, '.tif'),
        of_array([0, 2**30], np.int32, '.tif'),
    ],
)
def test_grey_of_more_than_8_bits_is_refused_with_a_way_to_convert_it(tmp_path, make):
    suffix, write = make
    path = tmp_path / f'x{suffix}'
    write(path)
    with refused(str(path), 'more than 8 bits', 'magick IN -depth 8 OUT.png'):
        read_image(path, 2)


# What a viewer shows of the rows 1 2 and 3 4 (EXIF 2.3, tag 274)
TURNED = {
    1: [[1, 2], [3, 4]],
    2: [[2, 1], [4, 3]],
    3: [[4, 3], [2, 1]],
    4: [[3, 4], [1, 2]],
    5: [[1, 3], [2, 4]],
    6: [[3, 1], [4, 2]],
    7: [[4, 2], [3, 1]],
    8: [[2, 4], [1, 3]],
    9: [[1, 2], [3, 4]],
}


@pytest.mark.parametrize('suffix', ['.png', '.jpg', '.tif'])
@pytest.mark.parametrize('orientation', TURNED)
def test_images_are_the_right_way_up(tmp_path, orientation, suffix):
    picture = np.kron(np.array([[50, 100], [150, 200]]), np.ones((16, 16))).astype(np.uint8)
    exif = Image.Exif()
    exif[274] = orientation
    Image.fromarray(picture).convert('RGB').save(tmp_path / f'x{suffix}', exif=exif)
    seen = read_image(tmp_path / f'x{suffix}', 32)[8::16, 8::16, 0] / 50
    assert np.abs(seen - TURNED[orientation]).max() < 0.1


FRAMES = [Image.new('RGB', (4, 4), colour) for colour in ('red', 'blue')]


@pytest.mark.parametrize('suffix', ['.gif', '.tif', '.webp', '.png'])
def test_the_first_frame_is_read(tmp_path, suffix):
    path = tmp_path / f'x{suffix}'
    options = {'lossless': True} if suffix == '.webp' else {}
    FRAMES[0].save(path, save_all=True, append_images=FRAMES[1:], **options)
    assert read_image(path, 4)[1, 1].tolist() == [255, 0, 0]


# -- what is read, and what is not


def encoded(kind, image=None, **options) -> bytes:
    file = io.BytesIO()
    (image or Image.fromarray(np.arange(768, dtype=np.uint8).reshape(16, 16, 3))).save(
        file, kind, **options
    )
    return file.getvalue()


BAD = {
    'EPS': (encoded('EPS'), 'expected one of PNG, JPEG'),
    'cut off': (encoded('JPEG')[:-200], ''),
    'empty': (b'', ''),
    'HEIC': (b'\0\0\0\x18ftypheic\0\0\0\0mif1heic', 'pillow-heif'),
    'bomb': (encoded('PNG', Image.new('1', (50, 40))), '2000 pixels'),
}


@pytest.mark.parametrize('name', BAD)
def test_what_is_no_image_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', 999)
    (tmp_path / 'x').write_bytes(BAD[name][0])
    with refused(f'{tmp_path / "x"}: not a readable image (', BAD[name][1]):
        read_image(tmp_path / 'x', 64)


@pytest.mark.parametrize(
    'make',
    [os.mkfifo, os.mkdir, lambda path: path.symlink_to('/dev/zero')],
    ids=['pipe', 'folder', 'device'],
)
def test_only_regular_files_are_opened(tmp_path, make):
    make(tmp_path / 'x.png')
    with refused(str(tmp_path / 'x.png'), 'not a readable image'):
        read_image(tmp_path / 'x.png', 8)


# -- which files are images


@pytest.fixture
def home(tmp_path):
    """train and test of two classes with two images each, one of them two folders down."""
    for part in ('train', 'test'):
        for y, name in enumerate('ab'):
            (tmp_path / part / name / 'deep' / 'deeper').mkdir(parents=True)
            for i, place in enumerate(('0.png', 'deep/deeper/1.PNG')):
                Image.new('L', (4, 4), 10 * y + i).save(tmp_path / part / name / place)
    return tmp_path


def test_other_files_are_left_out_with_one_line(home, capsys):
    images = readers.folder(home, 4)
    assert images.decoded_by == decoders()
    assert images.train_labels.tolist() == images.test_labels.tolist() == [0, 0, 1, 1]
    assert images.train[:, 0, 0, 0].tolist() == images.test[:, 0, 0, 0].tolist() == [0, 1, 10, 11]
    assert capsys.readouterr().err == ''
    for name in ('a/Thumbs.db', 'a/.DS_Store', 'b/deep/notes.TXT', 'b/labels.csv', 'outside.png'):
        (home / 'train' / name).write_bytes(b'no image')
    (home / 'test' / 'b' / 'deep' / 'back').symlink_to(home / 'test' / 'b')
    for name in ('a/@eaDir/0.png', 'b/__MACOSX', '$RECYCLE.BIN/S-1-5', '.checkpoints', 'a/.thumbs'):
        (home / 'train' / name).mkdir(parents=True)
        (home / 'train' / name / 'SYNOPHOTO_THUMB_M.jpg').write_bytes(b'no image')
    again = readers.folder(home, 4)
    assert again.class_names == ['a', 'b']
    assert (again.train == images.train).all()
    assert (again.test == images.test).all()
    (line,) = capsys.readouterr().err.splitlines()
    assert f'{home}: 5 files were left out' in line


@pytest.mark.parametrize('name', ['a/deep/bad.png', 'a/bad', 'a/deep/bad.heic'])
def test_an_image_that_cannot_be_read_is_named(home, name):
    (home / 'train' / name).write_bytes(b'no image')
    with refused(str(home / 'train' / name), 'not a readable image'):
        readers.folder(home, 4)


def test_links_to_images_and_to_folders_are_followed(home):
    (home / 'train' / 'a' / 'link.png').symlink_to(home / 'train' / 'b' / '0.png')
    (home / 'train' / 'a' / 'links').symlink_to(home / 'train' / 'b' / 'deep')
    assert sorted(readers.folder(home, 4).train[:4, 0, 0, 0].tolist()) == [0, 1, 10, 11]
    (home / 'train' / 'a' / 'gone.png').symlink_to(home / 'nowhere.png')
    with refused('gone.png'):
        readers.folder(home, 4)


@pytest.mark.parametrize(
    'damage, words',
    [
        (
            lambda home: (home / 'test' / 'b').rename(home / 'test' / 'c'),
            ['test/c', 'no such class in train/'],
        ),
        (lambda home: shutil.rmtree(home / 'test' / 'b'), ['test/b', 'no images']),
        (lambda home: (home / 'train' / 'empty').mkdir(), ['train/empty', 'no images']),
        (lambda home: shutil.rmtree(home / 'train'), ['train/<class>/', '--data_dir']),
    ],
)
def test_damage_to_a_folder_is_named(home, damage, words):
    damage(home)
    with refused(*words):
        readers.folder(home, 4)
