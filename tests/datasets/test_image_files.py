"""Encoded images: every kind of pixel gives the colours that a viewer shows, by hand, from a file and from Parquet; what is no
image is left out of a folder, and said."""
import io
import os
import struct
import warnings
import zlib

import numpy as np
import pyarrow
import pytest
from PIL import Image, features
from pyarrow import parquet

from core.environment import warn_once
from datasets.utils import readers
from datasets.utils.image_files import image_files, read_images
from scroll import InputError
from scroll.files.images import ImageFile
from tests.conftest import refused


@pytest.fixture(autouse=True)
def nothing_said_yet():
    warn_once.cache_clear()


def read_image(path, size):
    return read_images([path], size, path)[0]


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


def palette(suffix, transparency=None, mode='P'):
    """Four pixels of a palette of red, green and blue: 0, 1, 2, 1."""
    def write(path):
        image = Image.new('P', (4, 1))
        image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
        image.putdata([0, 1, 2, 1])
        if mode == 'PA':
            image = image.convert('PA')
            image.putalpha(Image.fromarray(np.array([[255, 0, 102, 255]], np.uint8)))
        image.save(path, **({} if transparency is None else dict(transparency=transparency)))
    return suffix, write


def png(depth: int, colour: int, pixels: bytes, width: int, transparent: bytes = None):
    """A row of pixels as the format stores them: Pillow writes no PNG of 2 or 4 bits with a transparent grey, nor colours of 16."""
    def chunk(name, content):
        return struct.pack('>I', len(content)) + name + content + struct.pack('>I', zlib.crc32(name + content))

    def write(path):
        chunks = [chunk(b'IHDR', struct.pack('>IIBBBBB', width, 1, depth, colour, 0, 0, 0))]
        chunks += [] if transparent is None else [chunk(b'tRNS', transparent)]
        path.write_bytes(b''.join([b'\x89PNG\r\n\x1a\n', *chunks, chunk(b'IDAT', zlib.compress(b'\0' + pixels)), chunk(b'IEND', b'')]))
    return '.png', write


def tiff(width: int, pixels: bytes, order: str = '<', **tags):
    """A row of pixels with these tags: Pillow writes no TIFF of 12, or of unsigned 32, bits, nor one where white is zero."""
    numbers = dict(width=256, height=257, bits=258, photometric=262, place=273, samples=277, length=279, extra=338, kind=339)

    def write(path):
        entries = dict(width=width, height=1, photometric=1, place=8, samples=1, length=len(pixels)) | tags
        body = [struct.pack(f'{order}HHIHH', numbers[name], 3, 1, value, 0)
                for name, value in sorted(entries.items(), key=lambda item: numbers[item[0]])]
        at = 8 + len(pixels) + len(pixels) % 2
        head = struct.pack(f'{order}2sHI', b'II' if order == '<' else b'MM', 42, at)
        path.write_bytes(head + pixels + b'\0' * (at - 8 - len(pixels)) + struct.pack(f'{order}H', len(body)) + b''.join(body) + b'\0' * 4)
    return '.tif', write


FULL = 2 ** 31 - 1
KINDS = {       # name -> ((suffix, write), expected colours of a row of pixels)
    'L': (saved('L', [0, 1, 128, 255], '.png'), grey(0, 1, 128, 255)),
    'RGB': (saved('RGB', [(1, 2, 3), (250, 0, 9)], '.png'), [[1, 2, 3], [250, 0, 9]]),
    '1': (saved('1', [0, 255], '.png'), grey(0, 255)), '1, BMP': (saved('1', [0, 255], '.bmp'), grey(0, 255)),
    '1, TIFF': (saved('1', [0, 255], '.tif'), grey(0, 255)),
    # 65535 -> 255: the nearest of v / 257, so that 128 -> 0.498, 129 -> 0.502, 32768 -> 127.502, 65406 -> 254.498
    'I;16, PNG': (of_array([0, 128, 129, 32768, 65406, 65535], np.uint16, '.png'), grey(0, 0, 1, 128, 254, 255)),
    'I;16, TIFF': (of_array([0, 128, 129, 32768, 65406, 65535], np.uint16, '.tif'), grey(0, 0, 1, 128, 254, 255)),
    'I;16, JPEG 2000': (of_array([0, 257, 65535], np.uint16, '.jp2'), grey(0, 1, 255)),
    'I;16B, TIFF': (tiff(3, struct.pack('>3H', 0, 514, 65535), '>', bits=16), grey(0, 2, 255)),
    'I;16, PPM': (of_array([0, 514, 65535], np.uint16, '.pgm'), grey(0, 2, 255)),
    'PPM up to 1023': (('.pgm', lambda path: path.write_bytes(b'P5 3 1 1023\n' + struct.pack('>3H', 0, 512, 1023))), grey(0, 128, 255)),
    '12 bits, TIFF': (tiff(2, bytes([0xff, 0xf8, 0x00]), bits=12), grey(255, 128)),          # 4095, 2048
    'white is zero, TIFF': (tiff(3, struct.pack('<3H', 0, 514, 65535), bits=16, photometric=0), grey(255, 253, 0)),
    'signed 16, TIFF': (tiff(3, struct.pack('<3h', 0, 16384, 32767), bits=16, kind=2), grey(0, 128, 255)),      # 127.504
    'I, TIFF': (of_array([0, 2 ** 30, FULL // 255, FULL], np.int32, '.tif'), grey(0, 128, 1, 255)),       # 127.50000006
    'unsigned 32, TIFF': (tiff(3, struct.pack('<3I', 0, 2 ** 31, 2 ** 32 - 1), bits=32), grey(0, 128, 255)),
    'I, black': (of_array([0, 0], np.int32, '.tif'), grey(0, 0)),
    'F': (of_array([0, 0.5, 0.25, 1], np.float32, '.tif'), grey(0, 128, 64, 255)),           # 127.5 to even, 63.75
    'F, PFM': (of_array([0, 0.25, 1], np.float32, '.pfm'), grey(0, 64, 255)),
    # over white: (a c + (255 - a) 255) / 255
    'LA': (saved('LA', [(100, 255), (100, 0), (0, 51), (55, 204)], '.png'), grey(100, 255, 204, 95)),
    'LA, TIFF': (tiff(2, bytes([55, 204, 9, 0]), bits=8, samples=2, extra=2), grey(95, 255)),
    'La, TIFF': (tiff(2, bytes([44, 204, 0, 0]), bits=8, samples=2, extra=1), grey(95, 255)),     # times its alpha: 55 * .8
    'RGBA': (saved('RGBA', [(9, 8, 7, 0), (9, 8, 7, 255), (0, 255, 55, 51)], '.png'), [[255] * 3, [9, 8, 7], [204, 255, 215]]),
    'RGBA, TIFF': (saved('RGBA', [(9, 8, 7, 0), (0, 255, 55, 51)], '.tif'), [[255] * 3, [204, 255, 215]]),
    'RGBA, WebP': (saved('RGBA', [(9, 8, 7, 0), (0, 255, 55, 51)], '.webp', lossless=True, exact=True), [[255] * 3, [204, 255, 215]]),
    'PA': (palette('.tif', mode='PA'), [[255, 0, 0], [255] * 3, [153, 153, 255], [0, 255, 0]]),
    'P': (palette('.png'), [[255, 0, 0], [0, 255, 0], [0, 0, 255], [0, 255, 0]]),
    'P, BMP': (palette('.bmp'), [[255, 0, 0], [0, 255, 0], [0, 0, 255], [0, 255, 0]]),
    'P, one clear': (palette('.png', 1), [[255, 0, 0], [255] * 3, [0, 0, 255], [255] * 3]),
    'P, half clear': (palette('.png', bytes([51, 0, 255])), [[255, 204, 204], [255] * 3, [0, 0, 255], [255] * 3]),
    'P, GIF': (palette('.gif', 1), [[255, 0, 0], [255] * 3, [0, 0, 255], [255] * 3]),
    'L, one clear': (saved('L', [7, 8, 9], '.png', transparency=8), grey(7, 255, 9)),
    'RGB, one clear': (saved('RGB', [(7, 0, 0), (8, 0, 0)], '.png', transparency=(8, 0, 0)), [[7, 0, 0], [255] * 3]),
    '1, one clear': (png(1, 0, bytes([0b01000000]), 2, struct.pack('>H', 0)), grey(255, 255)),
    '2 bits, one clear': (png(2, 0, bytes([0b00011011]), 4, struct.pack('>H', 1)), grey(0, 255, 170, 255)),
    '4 bits, one clear': (png(4, 0, bytes([0x0f, 0x19]), 4, struct.pack('>H', 1)), grey(0, 255, 255, 153)),
    '16 bits, one clear': (png(16, 0, struct.pack('>3H', 0, 514, 515), 3, struct.pack('>H', 514)), grey(0, 255, 2)),
    # of 16 bits Pillow reads the upper 8
    'RGB of 16 bits': (png(16, 2, struct.pack('>6H', 0, 0x01ff, 0xffff, 0x8000, 0x7fff, 0), 2), [[0, 1, 255], [128, 127, 0]]),
    'RGB of 16 bits, one clear': (png(16, 2, struct.pack('>6H', 0x1234, 0, 0, 0x4321, 0, 0), 2, struct.pack('>3H', 0x1234, 0, 0)),
                                  [[255] * 3, [0x43, 0, 0]]),
    'RGBA of 16 bits': (png(16, 6, struct.pack('>8H', 1, 2, 3, 0, 0, 0, 0, 0x3333), 2), grey(255, 204)),
    'LA of 16 bits': (png(16, 4, struct.pack('>4H', 7, 0, 0x6464, 0xffff), 2), grey(255, 100)),
    # 255 - c - k
    'CMYK': (saved('CMYK', [(0, 0, 0, 0), (255, 0, 0, 0), (0, 0, 0, 255), (10, 20, 30, 0)], '.tif'),
             [[255] * 3, [0, 255, 255], [0] * 3, [245, 235, 225]]),
    # R = Y + 1.402 (Cr - 128), B = Y + 1.772 (Cb - 128)
    'YCbCr': (saved('YCbCr', [(128, 128, 128), (76, 85, 255)], '.tif'), [[128] * 3, [254, 0, 0]]),
}


@pytest.mark.parametrize('kind', KINDS)
def test_every_kind_of_pixel(tmp_path, kind):
    (suffix, write), expected = KINDS[kind]
    path = tmp_path / f'x{suffix}'
    write(path)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        got = read_image(path, len(expected))
    assert got.dtype == np.uint8 and got.tolist() == [expected] * len(expected)        # the row, made as high as it is wide


@pytest.mark.parametrize('values, dtype, words', [
    ([0.5, 1.5], np.float32, ['0.5 to 1.5', 'expected 0 to 1']), ([-0.1, 0.5], np.float32, ['-0.1 to 0.5']),
    ([0, 200], np.float32, ['0 to 200']), ([0, np.nan], np.float32, ['nan']), ([0, np.inf], np.float32, ['inf']),
    ([-5, 2 ** 30], np.int32, ['-5 to 1073741824', 'below 0']), ([0, 255], np.int32, ['above 255', '8 or 16 bits']),
    ([0, 65535], np.int32, ['above 65535'])])
def test_numbers_for_which_there_is_no_grey_are_refused(tmp_path, values, dtype, words):
    _, write = of_array(values, dtype, '.tif')
    write(tmp_path / 'x.tif')
    with refused(str(tmp_path / 'x.tif'), *words):
        read_image(tmp_path / 'x.tif', 2)


# What a viewer shows of the rows 1 2 and 3 4 (EXIF 2.3, tag 274)
TURNED = {1: [[1, 2], [3, 4]], 2: [[2, 1], [4, 3]], 3: [[4, 3], [2, 1]], 4: [[3, 4], [1, 2]], 5: [[1, 3], [2, 4]],
          6: [[3, 1], [4, 2]], 7: [[4, 2], [3, 1]], 8: [[2, 4], [1, 3]], 9: [[1, 2], [3, 4]]}


AVIF = ['AVIF'] * features.check('avif')


@pytest.mark.parametrize('suffix', ['.png', '.jpg', '.tif', '.webp', *(f'.{kind.lower()}' for kind in AVIF)])
@pytest.mark.parametrize('orientation', TURNED)
def test_images_are_the_right_way_up(tmp_path, orientation, suffix):
    picture, exif = np.kron(np.array([[50, 100], [150, 200]]), np.ones((16, 16))).astype(np.uint8), Image.Exif()
    exif[274] = orientation
    Image.fromarray(picture).convert('RGB').save(tmp_path / f'x{suffix}', exif=exif, **(dict(lossless=True) if suffix == '.webp' else {}))
    seen = read_image(tmp_path / f'x{suffix}', 32)[8::16, 8::16, 0] / 50
    assert np.abs(seen - TURNED[orientation]).max() < 0.1


@pytest.mark.parametrize('suffix', ['.gif', '.tif', '.webp', '.png'])
def test_the_first_frame_is_read_and_that_is_said_once(tmp_path, capsys, suffix):
    for name in 'ab':
        frames = [Image.new('RGB', (4, 4), colour) for colour in ((255, 0, 0), (0, 255, 0), (0, 0, 255))]
        options = dict(lossless=True) if suffix == '.webp' else {}
        frames[0].save(tmp_path / f'{name}{suffix}', save_all=True, append_images=frames[1:], **options)
    Image.new('RGB', (4, 4)).save(tmp_path / 'c.png')
    paths = [tmp_path / name for name in (f'a{suffix}', f'b{suffix}', 'c.png')]
    for _ in range(2):
        assert read_images(paths, 4, tmp_path)[:, 1, 1].tolist() == [[255, 0, 0]] * 2 + [[0] * 3]
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1 and f'{tmp_path}: 2 of 3 images' in err and str(paths[0]) in err


# -- one reader for files and for Parquet ------------------------------------------------------------------------------


def encoded(kind, image=None, **options) -> bytes:
    file = io.BytesIO()
    (image or Image.fromarray(np.arange(768, dtype=np.uint8).reshape(16, 16, 3))).save(file, kind, **options)
    return file.getvalue()


def huge(width: int, height: int) -> bytes:
    """A PNG that claims these sides, and has no pixels."""
    head = b'IHDR' + struct.pack('>IIBBBBB', width, height, 1, 0, 0, 0, 0)
    crc = struct.pack('>I', zlib.crc32(head))
    return b'\x89PNG\r\n\x1a\n' + struct.pack('>I', 13) + head + crc + b'\0\0\0\0IDAT\x35\xaf\x06\x1e'


FRAMES = [Image.new('RGB', (4, 4), colour) for colour in ('red', 'blue')]
GOOD = {'JPEG': encoded('JPEG'), 'AVIF or PNG': encoded(*AVIF or ['PNG']), 'CMYK': encoded('JPEG', Image.new('CMYK', (9, 9), 7)),
        'frames': encoded('GIF', FRAMES[0], save_all=True, append_images=FRAMES[1:])}
BAD = {'EPS': (encoded('EPS'), 'expected one of PNG, JPEG'), 'PDF': (encoded('PDF'), 'expected one of PNG, JPEG'),
       'cut off': (encoded('JPEG')[:-200], ''), 'empty': (b'', ''), 'no image': (b'no image' * 99, ''),
       'HEIC': (b'\0\0\0\x18ftypheic\0\0\0\0mif1heic', 'pip install pillow-heif'),
       'film': (b'\0\0\0\x18ftypisom\0\0\0\0isommp42', ''), 'bomb': (huge(20000, 20000), 'pixels'),
       'real numbers': (encoded('TIFF', Image.fromarray(np.array([[0, 2]], np.float32))), 'expected 0 to 1')}


@pytest.mark.parametrize('name', [*GOOD, *BAD])
def test_files_and_parquet_have_one_reader(tmp_path, name):
    """The same pixels, made as large in the same way, or the same line."""
    content, word = (GOOD[name], '') if name in GOOD else BAD[name]
    (tmp_path / 'x').write_bytes(content)
    table = pyarrow.table(dict(image=pyarrow.array([content], pyarrow.binary()), y=['a']))
    parquet.write_table(table, tmp_path / 'x.parquet')
    entrances = ((tmp_path / 'x', lambda: read_image(tmp_path / 'x', 64)),
                 (f"{tmp_path / 'x.parquet'}: image of sample 0",
                  lambda: next(ImageFile(str(tmp_path / 'x.parquet')).blocks(9)).X[0]))
    found = []
    for place, read in entrances:
        try:
            found.append(Image.fromarray(read()).resize((64, 64), Image.Resampling.LANCZOS).tobytes())
        except InputError as error:
            assert str(error).startswith(f'{place}: not a readable image (') and len(str(error).splitlines()) == 1
            found.append(str(error).removeprefix(str(place)))
    assert found[0] == found[1] and isinstance(found[0], str) == (name in BAD)
    assert name in GOOD or word in found[0]


@pytest.mark.parametrize('make', [os.mkfifo, os.mkdir, lambda path: path.symlink_to('/dev/zero')], ids=['pipe', 'folder', 'device'])
def test_only_regular_files_are_opened(tmp_path, make):
    make(tmp_path / 'x.png')
    for read in (lambda: read_image(tmp_path / 'x.png', 8), lambda: ImageFile(str(tmp_path / 'x.png'))):
        with refused(str(tmp_path / 'x.png'), 'expected a regular file'):
            read()


@pytest.mark.parametrize('column, words', [
    ([dict(bytes=encoded('PNG'), path='a'), dict(bytes=None, path='b.png')], ["sample 1 is the path 'b.png' without bytes"]),
    ([encoded('PNG'), None], ['sample 1 is missing']), ([dict(path='b.png')], ['expected a column of bytes'])])
def test_an_image_without_bytes_is_named(tmp_path, column, words):
    parquet.write_table(pyarrow.table(dict(image=column, y=list(range(len(column))))), tmp_path / 'x.parquet')
    with refused(str(tmp_path / 'x.parquet'), *words):
        list(ImageFile(str(tmp_path / 'x.parquet')).blocks(9))


def test_blocks_of_images_are_bounded_in_bytes(tmp_path):
    """40 images of 7 MB each, in a file of 20 kB, with small ones between; each image is in one block."""
    large, y = encoded('PNG', Image.new('1', (1600, 1500))), [i % 7 for i in range(80)]
    images = [large if i % 2 else encoded('PNG', Image.new('L', (2, 1), i)) for i in range(80)]
    parquet.write_table(pyarrow.table(dict(image=images, y=y, id=list(range(80)))), tmp_path / 'x.parquet')
    seen, most = {}, 0
    for block in ImageFile(str(tmp_path / 'x.parquet')).blocks(8192):
        for image, label, i in zip(block.X, block.y.tolist(), block.id.tolist()):
            seen[i] = label, image[0, 0, 0], len(image)
        most = max(most, block.X.nbytes)
    assert 2 ** 27 < most < 2 ** 28 + 8e6
    assert seen == {i: (i % 7, 0, 1500) if i % 2 else (i % 7, i, 1) for i in range(80)}


# -- which files are images --------------------------------------------------------------------------------------------


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
    assert images.train_labels.tolist() == images.test_labels.tolist() == [0, 0, 1, 1]
    assert images.train[:, 0, 0, 0].tolist() == images.test[:, 0, 0, 0].tolist() == [0, 1, 10, 11]
    assert capsys.readouterr().err == ''
    for name in ('a/Thumbs.db', 'a/.DS_Store', 'b/deep/notes.TXT', 'b/labels.csv', 'outside.png'):
        (home / 'train' / name).write_bytes(b'no image')
    (home / 'test' / 'b' / 'deep' / 'back').symlink_to(home / 'test' / 'b')
    for name in ('a/@eaDir/0.png', 'b/__MACOSX', 'b/deep/#recycle', '$RECYCLE.BIN/S-1-5', '.checkpoints', 'a/.thumbs'):
        (home / 'train' / name).mkdir(parents=True)
        (home / 'train' / name / 'SYNOPHOTO_THUMB_M.jpg').write_bytes(b'no image')
    again = readers.folder(home, 4)
    assert again.class_names == ['a', 'b'] and (again.train == images.train).all() and (again.test == images.test).all()
    line, = capsys.readouterr().err.splitlines()
    assert f'{home}: 5 files were left out' in line


@pytest.mark.parametrize('name', ['a/deep/bad.png', 'a/bad.jpeg', 'a/bad', 'a/deep/bad.heic'])
def test_an_image_that_cannot_be_read_ends_a_run_in_one_line(home, command_line, name):
    (home / 'train' / name).write_bytes(b'no image')
    code, _, err = command_line('--model', 'sgd', '--lr', '0.1', '--dataset', 'seq-folder', '--data_dir', home,
                                '--n_splits', '2', '--weights', 'none', '--base_path', home / 'data')
    assert code == 2 and len(err.splitlines()) == 1
    assert str(home / 'train' / name) in err and 'not a readable image' in err


def test_links_to_images_and_to_folders_are_followed(home):
    (home / 'train' / 'a' / 'link.png').symlink_to(home / 'train' / 'b' / '0.png')
    (home / 'train' / 'a' / 'links').symlink_to(home / 'train' / 'b' / 'deep')
    assert sorted(readers.folder(home, 4).train[:4, 0, 0, 0].tolist()) == [0, 1, 10, 11]
    (home / 'train' / 'a' / 'gone.png').symlink_to(home / 'nowhere.png')
    with refused('gone.png'):
        readers.folder(home, 4)


def test_a_folder_that_cannot_be_read_is_named(home, monkeypatch):
    listing = os.scandir

    def denied(place):
        if str(place).endswith('deeper'):
            raise PermissionError(13, 'Permission denied', str(place))
        return listing(place)
    monkeypatch.setattr(os, 'scandir', denied)
    with refused('deeper', 'Permission denied'):
        image_files(home / 'train' / 'a')
