"""Files counted each once, in processes and by clusters: one digest whoever reads them; what is
lost or repeated is noticed.
"""

import io
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pyarrow import parquet
from sklearn.datasets import load_digits

from scroll import Embedder, Scroll
from scroll.files import engines
from scroll.files.features import FeatureFile
from scroll.files.images import ImageFile
from scroll.learners.state import State
from tests.scroll.conftest import PREPROCESSING, quick, refused, tiny_net

X, Y = load_digits(return_X_y=True)
CUTS = np.array_split(np.arange(len(Y)), 5)
COUNTER = engines.Counter({'buffer_size': 0})
WHOLE = Scroll(buffer_size=0).fit(X, Y).digest()


@pytest.fixture(scope='module')
def home(tmp_path_factory):
    """A folder of the digits in five files of both kinds, in two folders."""
    folder = tmp_path_factory.mktemp('digits')
    for i, at in enumerate(CUTS):
        part = folder / ('early' if i < 3 else 'late')
        part.mkdir(exist_ok=True)
        if i % 2:
            np.savez(part / f'{i}.npz', X=X[at], y=Y[at])
        else:
            parquet.write_table(
                pyarrow.table({'X': list(X[at]), 'y': Y[at]}),
                part / f'{i}.parquet',
                row_group_size=50,
            )
    return folder


def learned(command, out, *patterns, flags=()) -> str:
    code, digest, error = command('learn', '--from', *patterns, '-o', out, *flags)
    assert code == 0, error
    return digest.strip()


def test_files_are_learned_as_one_learner_learns_them_and_are_parts(home, command, monkeypatch):
    monkeypatch.setattr(FeatureFile, 'block', 40)
    assert (
        learned(command, 'a.npz', f'{home}/*/*', f'{home}/early/*', flags=['--head', 'lda'])
        == WHOLE
    )
    state = State.read('a.npz')
    assert state.params['head'] == 'lda'
    assert len(state.parts) == 5
    assert Scroll.load('a.npz').score(X, Y) > 0.9
    assert 'parts    5: ' in command('show', 'a.npz')[1]
    assert command('learn', home / 'early/1.npz', '-o', 'one.npz')[0] == 0
    assert set(State.read('one.npz').parts) < set(state.parts)
    assert command('merge', 'a.npz', 'one.npz', '-o', 'x.npz')[0] == 2
    assert command('remove', 'a.npz', '--samples', home / 'early/1.npz', '-o', 'less.npz')[0] == 0
    assert command('merge', 'less.npz', 'one.npz', '-o', 'again.npz')[1].strip() == WHOLE


def test_parts_without_samples_and_files_of_labels_count_for_nothing(command):
    every = pyarrow.table({'X': list(X[900:]), 'y': Y[900:]})
    parquet.write_table(every.slice(0, 0), '0.parquet')
    parquet.write_table(every, '1.parquet')
    np.save('2_x.npy', X[:900])
    np.save('2_y.npy', Y[:900])
    assert learned(command, 's.npz', '*.parquet', '*.npy') == WHOLE


@quick
@given(st.permutations(range(5)), st.data())
def test_any_tree_of_sums_is_the_whole(home, order, data):
    counts = [COUNTER(source) for source in engines.find([f'{home}/*/*'])]
    parts = list(counts)
    before = [count.state.statistics.digest() for count in counts]
    counts = [counts[i] for i in order]
    while len(counts) > 1:
        i = data.draw(st.integers(0, len(counts) - 2))
        counts[i : i + 2] = [engines.merge(counts[i], counts[i + 1])]
    assert counts[0].state.statistics.digest() == WHOLE
    assert len(counts[0].sources) == 5
    assert [part.state.statistics.digest() for part in parts] == before


def test_lost_and_repeated_files_are_noticed(home):
    sources = engines.find([f'{home}/early/*'])
    for counted, word in (
        (sources[:2], '2.parquet: was counted 0 times'),
        ([*sources, sources[1]], '1.npz: was counted 2 times'),
    ):
        count = engines.sum_of(map(COUNTER, counted))
        with refused(word):
            engines.state_of(count, sources)


@pytest.mark.parametrize(
    'words, said',
    [
        (['{home}/early/1.npz', '--workers', '2'], '--workers goes with --from'),
        (['{home}/early/1.npz', '--from', '{home}/*'], 'not both'),
        (['--from', '{home}/none*'], 'no file matches'),
        (['--from', '{home}/*/*', '--buffer_size', '9'], '--buffer_size'),
        (['--from', 'here/*'], 'here.npz: expected features in a file'),
        (['--from', '{home}/*/*', '--workers', 'x'], 'workers'),
        (['--from', 's3://x/*'], 's3://x/*: no file matches (those at URLs: copy or mount'),
        (['--from', '{home}/early/1.npz', 'text.npz'], 'text.npz: labels are strings'),
        (['--from', '{home}/early/1.npz', 'text.npz', '--workers', '2'], 'text.npz: labels are'),
        (
            ['--from', '{home}/early/1.npz', 'text.npz', '--split', 'test'],
            '1.npz: there is no split',
        ),
    ],
    ids=str,
)
def test_what_cannot_be_is_one_line(home, refusal, words, said):
    os.mkdir('here')
    Path('here/here.npz').write_text('no features')
    np.savez('text.npz', X=X, y=Y.astype(str))
    assert said in refusal(
        'learn', *(word.replace('{home}', str(home)) for word in words), '-o', 'x.npz'
    )
    assert not Path('x.npz').exists()


@dataclass(frozen=True)
class Killed:
    """Counts as `counter`; the process that takes the file `victim` ends at once."""

    counter: engines.Counter
    victim: str

    def __call__(self, source):
        if source == self.victim:
            os._exit(9)
        return self.counter(source)


def test_processes_have_the_digest_of_one_and_a_killed_one_is_noticed(home):
    sources = engines.find([f'{home}/*/*'])
    state = engines.total(COUNTER, sources, 2)
    assert state.statistics.digest() == WHOLE
    assert state.parts == engines.total(COUNTER, sources).parts
    with refused('--workers 2: a process was killed'):
        engines.total(Killed(COUNTER, sources[3]), sources, 2)


def by_ray(sources):
    ray = pytest.importorskip('ray')

    @ray.remote  # of functions alone
    def count(source):
        return COUNTER(source)

    return engines.sum_of(ray.get([count.remote(source) for source in sources]))


def by_spark(sources):
    sql = pytest.importorskip('pyspark.sql')
    if not (shutil.which('java') or os.environ.get('JAVA_HOME')):
        pytest.skip('Spark needs Java, which is not there')
    context = sql.SparkSession.builder.master('local[2]').getOrCreate().sparkContext
    return context.parallelize(sources, len(sources)).map(COUNTER).reduce(engines.merge)


def by_dask(sources):
    bag = pytest.importorskip('dask.bag').from_sequence(sources, npartitions=len(sources))
    return bag.map(COUNTER).reduction(engines.sum_of, engines.sum_of).compute()


@pytest.mark.slow
@pytest.mark.parametrize('count', [by_ray, by_spark, by_dask])
def test_clusters_have_the_digest_of_one_process(home, monkeypatch, count):
    monkeypatch.setenv('PYSPARK_PYTHON', sys.executable)
    sources = engines.find([f'{home}/*/*'])
    state = engines.state_of(count(sources), sources)
    assert state.statistics.digest() == WHOLE
    assert state.parts == engines.total(COUNTER, sources).parts


# Images as bytes

OURS = f'{__name__}:make_embedder'


def make_embedder() -> Embedder:
    return Embedder(tiny_net(), PREPROCESSING)


def png(image) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, 'png')
    return file.getvalue()


def test_images_as_bytes_are_embedded_where_they_are_read(command, monkeypatch):
    """Several sizes, in blocks: as one by one; in files that are given, added or found."""
    images = [
        np.random.default_rng(i).integers(0, 256, (12 + 4 * (i % 3 == 1), 16, 3)).astype(np.uint8)
        for i in range(16)
    ]
    y = np.arange(16) % 4
    monkeypatch.setattr(ImageFile, 'block', 5)
    flags = ['--embedder', OURS]
    parquet.write_table(
        pyarrow.table(
            {'image': list(map(png, images[:9])), 'y': y[:9], 'split': ['train'] * 8 + ['test']}
        ),
        '0.parquet',
    )
    parquet.write_table(
        pyarrow.table({'image': [{'bytes': png(image)} for image in images[9:]], 'y': y[9:]}),
        '1.parquet',
    )
    one = Scroll(make_embedder(), buffer_size=0)
    for i in [i for i in range(16) if i != 8]:
        one.partial_fit(images[i][None], y[i : i + 1])
    assert learned(command, 'a.npz', '*.parquet', flags=flags) == one.digest()
    assert Scroll.load('a.npz', make_embedder()).classes_.tolist() == [0, 1, 2, 3]
    assert command('learn', '0.parquet', '-o', 'b.npz', *flags)[0] == 0
    assert command('add', 'b.npz', '1.parquet', '-o', 'b.npz', *flags)[1].strip() == one.digest()
    words = 'predict b.npz 0.parquet --split all -o c'
    command(*words.split(), *flags)
    assert set(Path('c').read_text().split()[1:]) == {
        f'{i},{one.predict(images[i][None])[0]},{y[i]}' for i in range(9)
    }


@pytest.mark.parametrize(
    'column, embedder, said',
    [
        ([b'no image'], OURS, 'image of sample 0: not a readable image'),
        ([3], OURS, 'expected a column of bytes'),
        ([b''], 'none', 'MODULE:NAME'),
        ([b''], 'os:getcwd,x=1', 'MODULE:NAME'),
        ([b''], 'os:getcwd+os:getcwd', 'it made'),
        (
            [{'bytes': None, 'path': 'cat.png'}, {'bytes': b''}],
            OURS,
            'image of sample 0 has no bytes',
        ),
        ([{'path': 'cat.png'}], OURS, 'expected a column of bytes'),
    ],
)
def test_no_images_or_no_embedder_is_one_line(refusal, column, embedder, said):
    parquet.write_table(
        pyarrow.table({'picture': pyarrow.array(column), 'label': [1] * len(column)}), 'x.parquet'
    )
    words = 'learn x.parquet -o x.npz --columns X=picture,y=label --embedder'
    assert said in refusal(*words.split(), embedder)


def test_images_are_read_from_parquet_alone(home, command):
    words = ['learn', home / 'early/1.npz', '-o', 'o', '--embedder', OURS]
    assert 'from Parquet alone' in command(*words)[2]


# Sums that were made elsewhere


def test_statistics_are_learned_as_samples_are():
    learner = Scroll(buffer_size=0)
    for at in CUTS:
        part = Scroll(buffer_size=0).fit(X[at], Y[at]).statistics_
        learner.add_statistics(part)
    assert learner.digest() == WHOLE
    assert learner.n_features_in_ == 64
    with refused('statistics'):
        learner.add_statistics(X)
    for other in (
        Scroll(),
        Scroll(buffer_size=0, keep_keys=True),
        Scroll(head='rp', buffer_size=0, lift_dim=5),
        Scroll(make_embedder(), buffer_size=0),
    ):
        with refused():
            other.add_statistics(part)
        assert not hasattr(other, 'statistics_')
    assert learner.digest() == WHOLE
