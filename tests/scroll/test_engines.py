"""Files counted by engines, each once: one digest whoever reads them; what is lost, repeated or changed is noticed."""
import copy
import importlib.util
import io
import os
import shutil
import sys
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pyarrow import parquet
from sklearn.datasets import load_digits

from scroll import Embedder, InputError, Scroll, engines
from scroll.__main__ import main
from scroll.engines import counting, running
from scroll.state import State
from tests.scroll.conftest import PREPROCESSING, quick, refused, tiny_net

X, Y = load_digits(return_X_y=True)
CUTS = np.array_split(np.arange(len(Y)), 11)
PARAMS = {name: value for name, value in Scroll(buffer_size=0).get_params().items() if name != 'embedder'}
COUNTER = counting.Counter(PARAMS)


@pytest.fixture(scope='module')
def home(tmp_path_factory):
    """A folder of the digits in eleven files of both kinds, in two folders."""
    folder = tmp_path_factory.mktemp('digits')
    for i, at in enumerate(CUTS):
        part = folder / ('early' if i < 6 else 'late')
        part.mkdir(exist_ok=True)
        if i % 2:
            np.savez(part / f'{i:02}.npz', X=X[at], y=Y[at])
        else:
            parquet.write_table(pyarrow.table(dict(X=list(X[at]), y=Y[at])), part / f'{i:02}.parquet', row_group_size=50)
    return folder


@pytest.fixture
def command(capsys, tmp_path, monkeypatch):
    """command('learn', ...) in a folder of its own -> (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        capsys.readouterr()
        return main([str(word) for word in words]), *capsys.readouterr()
    return run


WHOLE = Scroll(buffer_size=0).fit(X, Y).digest()


def learned(command, out, *patterns, flags=()) -> str:
    code, digest, error = command('learn', '--from', *patterns, '-o', out, *flags)
    assert code == 0, error
    return digest.strip()


def test_files_are_learned_as_one_learner_learns_them(home, command):
    assert learned(command, 'a.npz', f'{home}/*/*', flags=['--engine', 'local', '--head', 'lda', '--block_size', '40']) == WHOLE
    state = State.read('a.npz')
    assert state.statistics.digest() == WHOLE and state.params['head'] == 'lda' and len(state.parts) == 11
    assert sorted(map(counting.rows_of, state.parts)) == sorted(map(len, CUTS))
    names = [block.split(' ')[1] for block in state.parts]
    assert 'early/00.parquet[0:164]' in names and 'late/10.parquet[0:163]' in names
    assert 'parts    11: ' in command('show', 'a.npz')[1]
    assert Scroll.load('a.npz').score(X, Y) > 0.9
    # what blocks are called does not depend on where the folder is, nor on how it is written
    os.symlink(home, 'there')
    learned(command, 'b.npz', './there/late/*', 'there/early/*.npz', 'there/early/*.parquet', 'there/early/00*')
    assert State.read('b.npz').parts == state.parts


def test_shares_and_files_put_together_are_the_whole(home, command):
    for i in (1, 2, 3):
        learned(command, f'{i}.npz', f'{home}/*/*', flags=['--shard', f'{i}/3'])
        assert command('learn', home / 'early/01.npz', '--shard', f'{i}/3', '-o', f'one-{i}.npz')[0] == 0
    assert command('merge', '3.npz', '1.npz', '2.npz', '-o', 'all.npz')[1].strip() == WHOLE
    assert command('merge', *(f'one-{i}.npz' for i in (1, 2, 3)), '-o', 'one.npz')[1] == \
        command('learn', home / 'early/01.npz', '-o', 'x.npz')[1]
    code, _, error = command('merge', 'all.npz', '2.npz', '-o', 'twice.npz')
    assert code == 2 and 'count twice' in error and not Path('twice.npz').exists()
    assert len(State.read('all.npz').parts) == 33 and command('learn', home / 'early/01.npz', '--shard', '3/2', '-o', 'x')[0] == 2


def test_equal_content_counts_under_another_name_and_other_content_under_the_same(command):
    for site, at in (('one', CUTS[0]), ('two', CUTS[1]), ('three', CUTS[0])):
        os.mkdir(site)
        np.savez(f'{site}/part-0.npz', X=X[at], y=Y[at])
        np.savez(f'{site}/part-1.npz', X=X[at[::-1]], y=Y[at[::-1]])        # the same content: rows in another order
        learned(command, f'{site}.npz', f'{site}/*.npz')
    blocks = State.read('one.npz').parts
    assert {name.split('/')[-1] for name in blocks} == set(blocks) and len({block.split(' ')[0] for block in blocks}) == 1
    assert State.read('one.npz').statistics.total == 2 * len(CUTS[0])
    assert command('merge', 'one.npz', 'two.npz', '-o', 'x.npz')[0] == 0
    assert command('merge', 'one.npz', 'three.npz', '-o', 'x.npz')[0] == 2


def test_what_goes_on_is_taken_out_or_renamed_still_knows_its_parts(home, command):
    learned(command, 'a.npz', f'{home}/early/*')
    learned(command, 'one.npz', f'{home}/early/01.npz')
    for name in ('late/07.npz', 'early/01.npz'):                     # the same file as a part of one learner's own
        assert command('learn', home / name, '-o', f'own-{name[6:]}' if name[0] == 'e' else 'late.npz')[0] == 0
    assert command('add', 'a.npz', home / 'late/07.npz', '-o', 'more.npz')[0] == 0
    assert command('remove', 'a.npz', '--samples', home / 'early/01.npz', '-o', 'less.npz')[0] == 0
    assert command('rename', 'a.npz', '0=10', '-o', 'other.npz')[0] == 0
    count = len(State.read('a.npz').parts)
    assert {name: len(State.read(f'{name}.npz').parts) for name in ('more', 'less', 'other')} == dict(
        more=count + 1, less=count + 1, other=count)
    for one, two in (('a', 'less'), ('less', 'less'), ('more', 'a'), ('more', 'late'), ('a', 'one'), ('a', 'own-01'), ('other', 'one')):
        assert command('merge', f'{one}.npz', f'{two}.npz', '-o', 'x.npz')[0] == 2, (one, two)
        assert command('merge', f'{two}.npz', f'{one}.npz', '-o', 'x.npz')[0] == 2, (two, one)
    for back in ('one', 'own-01'):                                   # what was taken out may come back, once
        assert command('merge', 'less.npz', f'{back}.npz', '-o', 'x.npz')[1] == command('digest', 'a.npz')[1]
        assert command('merge', 'x.npz', 'one.npz', '-o', 'y.npz')[0] == 2


PARTS = [counting.StatisticsFile(str(i), Scroll(buffer_size=0).fit(X[at], Y[at]).statistics_, '', {f'{i} x[0:9]': 1})
         for i, at in enumerate(CUTS[:5])]


@quick
@given(st.data())
def test_any_tree_with_any_repetitions_counts_each_block_once(data):
    """Counts meet in any order, some more than once: each pair is put together, refused, or one has the other."""
    counts = [PARTS[i] for i in data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=12))]
    expected = Scroll(buffer_size=0).fit(X[np.concatenate([CUTS[int(part.path)] for part in counts])],
                                         Y[np.concatenate([CUTS[int(part.path)] for part in counts])])
    once = {part.path: part for part in counts}.values()
    before = [part.statistics.digest() for part in PARTS]
    try:
        while len(counts) > 1:
            i, j = data.draw(st.permutations(range(len(counts))))[:2]
            both = counting.merge_counts(counts[i], counts[j])
            counts = [count for k, count in enumerate(counts) if k not in (i, j)] + [both]
    except InputError as error:
        assert 'two parts' in str(error)
    else:
        assert counts[0].parts == reduce(lambda a, b: a | b, (part.parts for part in once))
        exact = reduce(lambda a, b: a.merge(b.statistics), once, copy.copy(expected.statistics_.empty_like()))
        assert counts[0].statistics.digest() == exact.digest()
    assert [part.statistics.digest() for part in PARTS] == before


def test_lost_changed_and_repeated_files_are_noticed(home, monkeypatch):
    sources, total = counting.find([f'{home}/early/*']), running.local
    assert engines.total('local', COUNTER, sources).statistics.total == sum(map(len, CUTS[:6]))
    monkeypatch.setattr(running, 'local', lambda counter, all_, *rest: total(counter, all_[:2] + all_[3:], *rest))
    with refused('02.parquet: was not counted, nor were 0 others of 6'):
        engines.total('local', COUNTER, sources)
    monkeypatch.setattr(running, 'local', lambda counter, all_, *rest: total(counter, [*all_, *all_[1:3]], *rest))
    assert len(engines.total('local', COUNTER, sources).parts) == 6
    other = sources[3]._replace(path=str(home / 'late/07.npz'))
    monkeypatch.setattr(running, 'local', lambda counter, all_, *rest: total(counter, [*all_, other], *rest))
    with refused('03.npz: was read twice, with different content'):
        engines.total('local', COUNTER, sources)


@pytest.mark.parametrize('words, said', [
    (['{home}/early/01.npz', '--engine', 'ray'], '--engine goes with --from'), (['{home}/early/01.npz', '--from', '{home}/*'], 'not both'),
    (['--from', '{home}/none*'], 'no file matches'),
    (['--from', '{home}/*/*', '--buffer_size', '9'], '--buffer_size'), (['--from', '{home}/*/*', '--workers', '2'], 'one process'),
    (['--from', '{home}/*/*', '--engine', 'dask', '--gpus', '1'], 'GPUs'), (['--from', 'here/*'], 'here.npz: expected features in a file'),
    (['--from', '{home}/*/*', '--engine', 'spark', '--workers', 'x'], 'workers'), (['--from', 'no://x/*'], 'no://'),
    (['--from', '{home}/*/*', '--split', 'test'], 'there is no split'),
    (['--from', '{home}/*/*.npz', '--embedder', 'none'], '--embedder none'), (['--from', '{home}/*/*.npz', '--embedder', 'os:getcwd'], 'makes a str'),
    (['--from', '{home}/*/*.npz', '--embedder', f'{__name__}:make_embedder'], 'parquet')], ids=str)
def test_what_cannot_be_is_one_line(home, command, words, said):
    os.mkdir('here')
    Path('here/here.npz').write_text('no features')
    code, out, error = command('learn', *(word.replace('{home}', str(home)) for word in words), '-o', 'x.npz')
    assert (code, out, len(error.splitlines())) == (2, '', 1) and said in error and not Path('x.npz').exists()


@pytest.mark.parametrize('engine', ['ray', 'spark', 'dask'])
def test_an_engine_that_is_not_installed(home, command, monkeypatch, engine):
    package = dict(spark='pyspark').get(engine, engine)
    monkeypatch.setitem(sys.modules, package, None)
    code, _, error = command('learn', '--from', f'{home}/*/*', '--engine', engine, '-o', 'x.npz')
    assert code == 2 and f'pip install ".[{engine}]"' in error and 'not installed' in error


def test_urls(home, command):
    pytest.importorskip('fsspec')
    assert learned(command, 'a.npz', f'file://{home}/*/*.npz', f'file://{home}/*/*.parquet') == WHOLE
    learned(command, 'b.npz', f'{home}/*/*')
    assert State.read('a.npz').parts == State.read('b.npz').parts


# Images as bytes

def make_embedder(device='cpu') -> Embedder:
    return Embedder(tiny_net(), PREPROCESSING, device=device)


def png(image) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, 'png')
    return file.getvalue()


def test_images_as_bytes_are_embedded_where_they_are_read(command):
    chance = np.random.default_rng(0)
    images = [chance.integers(0, 256, (12 + 4 * (i % 3 == 1), 16, 3)).astype(np.uint8) for i in range(20)]
    y = np.arange(20) % 4
    table = pyarrow.table(dict(image=[png(image) for image in images[:12]], y=y[:12], split=['train'] * 11 + ['test']))
    parquet.write_table(table, '0.parquet')
    structs = [dict(bytes=png(image), path=None) for image in images[12:]]
    parquet.write_table(pyarrow.table(dict(image=structs, y=y[12:], split=['train'] * 8)), '1.parquet')
    flags = ['--embedder', f'{__name__}:make_embedder', '--block_size', '5']
    digest = learned(command, 'a.npz', '*.parquet', flags=flags)
    one = Scroll(make_embedder(), buffer_size=0)
    for i in [i for i in range(20) if i != 11]:
        one.partial_fit(images[i][None], y[i:i + 1])
    assert digest == one.digest() and Scroll.load('a.npz', make_embedder()).classes_.tolist() == [0, 1, 2, 3]
    for i in (1, 2):
        learned(command, f's{i}.npz', '*.parquet', flags=[*flags, '--shard', f'{i}/2'])
    assert command('merge', 's1.npz', 's2.npz', '-o', 'b.npz')[1].strip() == digest
    for column, said in (([b'no image'], 'image of sample 0: not a readable image'), ([3], 'expected a column of bytes')):
        os.makedirs('bad', exist_ok=True)
        parquet.write_table(pyarrow.table(dict(picture=column, label=[1])), 'bad/x.parquet')
        code, _, error = command('learn', '--from', 'bad/*', '-o', 'x.npz', *flags, '--columns', 'X=picture,y=label')
        assert code == 2 and said in error and len(error.splitlines()) == 1


# Engines

@dataclass(frozen=True)
class Killed:
    """Counts as `counter`; the first process that takes the file `victim` ends at once."""
    counter: counting.Counter
    folder: str
    victim: str

    def __call__(self, source):
        try:
            if source.name == self.victim:
                os.close(os.open(os.path.join(self.folder, 'killed'), os.O_CREAT | os.O_EXCL))
                os._exit(9)
        except FileExistsError:
            pass
        return self.counter(source)


@pytest.mark.slow
@pytest.mark.parametrize('engine, workers, partitions', [('ray', 3, None), ('spark', 3, 7), ('dask', 3, None)])
def test_engines_have_the_digest_of_one_process_also_when_a_worker_is_killed(home, tmp_path, monkeypatch, engine, workers,
                                                                             partitions):
    monkeypatch.setenv('RAY_raylet_start_wait_time_s', '300')                       # the machine may be busy
    package = dict(spark='pyspark').get(engine, engine)
    if importlib.util.find_spec(package) is None:
        pytest.skip(f'{package} is not installed')
    if engine == 'spark' and not (shutil.which('java') or os.environ.get('JAVA_HOME')):
        pytest.skip('Spark needs Java, which is not there')
    sources = counting.find([f'{home}/*/*'])
    counted = engines.total(engine, Killed(COUNTER, str(tmp_path), sources[4].name), sources, workers, partitions)
    assert (tmp_path / 'killed').exists() and counted.statistics.digest() == WHOLE
    assert counted.parts == engines.total('local', COUNTER, sources).parts
    with refused('y'):                                                              # errors of a file are as in one process
        engines.total(engine, counting.Counter(PARAMS, dict(y='none')), sources[:2], 1)


# Sums that were made elsewhere

def test_statistics_are_learned_as_samples_are():
    whole, parts = Scroll(buffer_size=0).fit(X, Y), [Scroll(buffer_size=0).fit(X[at], Y[at]).statistics_ for at in CUTS]
    learner = Scroll(buffer_size=0)
    for part in parts:
        learner.add_statistics(part)
    assert learner.digest() == whole.digest() and learner.predictor().digest() == whole.predictor().digest()
    assert learner.n_features_in_ == 64 and parts[0].total == len(CUTS[0])
    for other, given_ in ((Scroll(), parts[0]), (Scroll(buffer_size=0, keep_keys=True), parts[0]), (learner, X),
                          (Scroll(head='rp', buffer_size=0, lift_dim=5), parts[0])):
        with refused():
            other.add_statistics(given_)
    assert not hasattr(other, 'statistics_') and learner.digest() == whole.digest()
