"""The check that `make wheel` runs where nothing but the wheel is installed: digits, two schedules,
one digest, files, commands.
"""

import importlib.metadata
import importlib.util
import subprocess
import sys

import numpy as np
from sklearn.datasets import load_digits

import scroll
from scroll import InputError, Scroll, ScrollClassifier, make_schedule


def command(words: str) -> str:
    """Output of `python -m scroll`."""
    return subprocess.run(
        [sys.executable, '-I', '-m', 'scroll', *words.split()],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    ).stdout


def says(action, error) -> str:
    """The message of the error that `action` must raise."""
    try:
        action()
    except error as caught:
        return str(caught)
    raise SystemExit(f'expected {error.__name__}')


def main() -> None:
    assert importlib.util.find_spec('torch') is None, 'this environment has torch: it shows nothing'
    names = {str(path).split('/')[0] for path in importlib.metadata.files('scroll-cl')}
    assert names == {'scroll', 'exact_torch', f'scroll_cl-{scroll.__version__}.dist-info'}, names

    X, y = load_digits(return_X_y=True)
    X, y, X_test, y_test = X[::2], y[::2], X[1::2], y[1::2]
    learners = [Scroll(buffer_size=200, strategy='hash', ridge_lambda='auto') for _ in range(2)]
    for learner, spec in zip(learners, ('split:5', 'gaussian:sigma=0.5,batch=32')):
        for ids in make_schedule(spec, y, seed=1).segments():
            learner.partial_fit(X[ids], y[ids])
    one, two = learners
    accuracy = one.score(X_test, y_test)
    assert one.digest() == two.digest()
    assert one.predictor().digest() == two.predictor().digest()
    assert one.buffer_.content().digest() == two.buffer_.content().digest()
    assert 0.9 < accuracy == two.score(X_test, y_test), accuracy
    digests = f'statistics {one.digest()[:16]}, f_T {one.predictor().digest()[:16]}'
    print(f'{accuracy:.4f} of the digits right under two schedules; {digests}')

    classifier = ScrollClassifier(ridge_lambda='auto').fit(X, y)
    assert classifier.digest() == one.digest()
    assert classifier.score(X_test, y_test) == accuracy
    assert np.allclose(classifier.predict_proba(X_test).sum(axis=1), 1)
    one.save('state.npz')
    assert Scroll.load('state.npz').digest() == one.digest()
    for half in (0, 1):
        Scroll(buffer_size=0).fit(X[half::2], y[half::2]).statistics_.save(f'{half}.npz')
    assert command('merge 0.npz 1.npz -o all.npz').strip() == one.digest()
    assert one.digest() in command('show state.npz')
    np.savez('old.npz', X=X[:100], y=y[:100])
    forgotten = command('unlearn state.npz --samples old.npz -o new.npz').strip()
    assert forgotten == Scroll().fit(X[100:], y[100:]).digest()

    np.savez(
        'digits.npz',
        X=np.concatenate([X, X_test]),
        y=np.concatenate([y, y_test]),
        split=['train'] * len(X) + ['test'] * len(X_test),
    )
    assert (
        command('learn digits.npz -o line.npz --ridge_lambda auto').strip()
        == Scroll().fit(X, y).digest()
    )
    assert f'accuracy {accuracy:.4f}' in command('predict line.npz digits.npz -o labels.csv')

    for action, error in ((two.adapt, InputError), (lambda: scroll.Embedder, ImportError)):
        message = says(action, error)
        assert 'pip install ".[images]"' in message, message
        assert len(message.splitlines()) == 1, message
    print('merged and unlearned by command line; without torch')


if __name__ == '__main__':
    main()
