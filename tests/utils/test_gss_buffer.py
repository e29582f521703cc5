"""GSS-Greedy: scores against gradients by hand, replacement against its
probabilities, passes without repetition."""
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from utils.gss_buffer import Buffer

CLASSES = 3


def method(**more):
    """A net of one linear layer without bias: the gradient of sample (x, y) is (softmax(W x) - e_y) x^T."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, CLASSES, bias=False))
    return SimpleNamespace(net=net, loss=F.cross_entropy, **more)


def samples(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, 1, 2, 2,
                      generator=generator), torch.randint(0, CLASSES, (count,), generator=generator)


def gradient(model, x, y):
    x, weight = x.flatten().double().numpy(), model.net[1].weight.detach().double().numpy()
    p = np.exp(weight @ x)
    return np.outer(p / p.sum() - np.eye(CLASSES)[y], x).ravel()


def cosine(a, b):
    return a @ b / np.sqrt((a @ a) * (b @ b))


def test_scores_are_one_plus_the_largest_cosine_to_the_stored_gradients():
    model = method()
    buffer = Buffer(5, 'cpu', 5, model, seed=0)             # as many compared as are stored: no choice
    kept, new = samples(5), samples(8, 1)
    assert buffer.gradient_scores(*new).tolist() == [1.0] * 8
    buffer.add_data(*kept)
    stored = [gradient(model, *sample) for sample in zip(*kept)]
    expected = [1 + max(cosine(gradient(model, *sample), g) for g in stored) for sample in zip(*new)]
    np.testing.assert_allclose(buffer.gradient_scores(*new).numpy(), expected, rtol=1e-5)
    assert min(expected) < 1 < max(expected)                # the case has both kinds


def test_gradients_are_of_normalised_images_in_eval_mode_and_leave_no_trace():
    model = method(normalization_transform=lambda x: 2 * x - 1)
    model.net.append(nn.BatchNorm1d(CLASSES))
    buffer = Buffer(4, 'cpu', 4, model, seed=0)
    buffer.add_data(*samples(4))
    before = {k: v.clone() for k, v in model.net.state_dict().items()}
    scores = buffer.gradient_scores(*samples(6, 1))
    assert model.net.training and all(p.grad is None for p in model.net.parameters())
    assert all(torch.equal(before[k], v) for k, v in model.net.state_dict().items())
    plain = method()
    plain.net.append(nn.BatchNorm1d(CLASSES))
    other = Buffer(4, 'cpu', 4, plain, seed=0)
    (x, y), (new_x, new_y) = samples(4), samples(6, 1)
    other.add_data(2 * x - 1, y)
    torch.testing.assert_close(scores, other.gradient_scores(2 * new_x - 1, new_y))


def test_gradients_of_stored_samples_are_kept_until_they_are_dropped():
    """And of as many stored samples as asked for."""
    model, new = method(), samples(3, 1)
    buffer = Buffer(4, 'cpu', 4, model, seed=0)
    buffer.add_data(*samples(4))
    first = buffer.gradient_scores(*new)
    with torch.no_grad():
        model.net[1].weight.mul_(-3)
    stale = buffer.gradient_scores(*new)
    buffer.drop_cache()
    expected = [1 + max(cosine(gradient(model, *sample), gradient(model, a, b)) for a, b in zip(*samples(4)))
                for sample in zip(*new)]
    np.testing.assert_allclose(buffer.gradient_scores(*new).numpy(), expected, rtol=1e-5)
    assert not torch.allclose(stale, buffer.gradient_scores(*new)) and not torch.allclose(first, stale)
    some = Buffer(20, 'cpu', 3, model, seed=0)
    some.add_data(*samples(20))
    some.gradient_scores(*new)
    assert some.stored_gradients.shape == (3, 4 * CLASSES)


def scored(size, scores, seed):
    """A buffer filled by samples 0, 1, ... with these scores."""
    buffer = Buffer(size, seed=seed)
    buffer.add_data(torch.arange(size).float().view(-1, 1), torch.zeros(size),
                    sample_selection_scores=torch.tensor(scores))
    return buffer


def test_while_it_is_not_full_everything_is_kept_in_order():
    buffer = Buffer(5, 'cpu', 2, method(), seed=0)
    x, y = samples(5)
    for part in (slice(0, 3), slice(3, 5)):
        buffer.add_data(x[part], y[part])
    assert torch.equal(buffer.examples, x) and torch.equal(buffer.labels, y) and buffer.num_seen_examples == 5


@pytest.mark.parametrize('scores, score',
                         [([1.0, 2.0, 1.0, 1.5], 1.0), ([1.0, 2.0, 1.0, 1.5], 2.0), ([0.0] * 4, 0.5)])
def test_a_sample_like_a_stored_one_is_not_taken_and_rows_with_a_score_of_zero_stay(scores, score):
    buffer = scored(4, scores, 0)
    buffer.add_data(torch.full((50, 1), 9.0), torch.zeros(50),
                    sample_selection_scores=torch.full((50,), score))
    assert buffer.examples.flatten().tolist() == [0, 1, 2, 3]


def test_rows_are_challenged_and_lost_with_the_probabilities_of_the_algorithm():
    scores, new, trials = [0.5, 1.0, 1.5, 2.0], 0.5, 4000
    lost, choose = np.zeros(5), scored(4, scores, 0).sample_selection_fn
    for _ in range(trials):
        row, = choose(1, None, [new])
        lost[row] += 1
        assert choose.scores.tolist() == [new if i == row else score for i, score in enumerate(scores)]
        choose.scores[:] = scores
    C = np.array(scores)
    expected = C / C.sum() * C / (C + new)
    deviations = np.sqrt(expected * (1 - expected) / trials)
    assert (np.abs(lost[:4] / trials - expected) < 4 * deviations).all()


def test_draws_do_not_repeat_a_sample_before_all_have_come():
    buffer = scored(10, [1.0] * 10, 3)
    for _ in range(3):
        buffer.reset_fathom()
        drawn = [int(v) for _ in range(2) for v in buffer.get_data(5)[0].flatten()]
        assert sorted(drawn) == list(range(10))
    drawn = [buffer.get_data(4)[0].flatten().tolist() for _ in range(500)]
    assert all(len(set(batch)) == 4 for batch in drawn)         # also across the end of a pass
    counts = np.bincount(np.array(drawn, int).ravel())
    assert counts.sum() == 2000 and counts.max() - counts.min() <= 2
    assert len(buffer.get_data(99)[0]) == 10


def test_after_emptying_nothing_of_before_is_drawn_or_compared_to():
    model = method()
    buffer = Buffer(6, 'cpu', 2, model, seed=0)
    buffer.add_data(*samples(6))
    buffer.gradient_scores(*samples(1))
    buffer.get_data(2)
    buffer.empty()
    buffer.add_data(*samples(2, 5))
    assert sorted(buffer.draw(2).tolist()) == [0, 1] and buffer.stored_gradients is None


def test_state_comes_back():
    a, b = scored(4, [1.0, 2.0, 1.0, 1.5], 0), Buffer(4, seed=9)
    b.load_state_dict(a.state_dict())
    for buffer in (a, b):
        buffer.add_data(torch.full((50, 1), 9.0), torch.zeros(50),
                        sample_selection_scores=torch.linspace(0.1, 1, 50))
    assert torch.equal(a.examples, b.examples) and (a.examples == 9).any()


def test_batches_on_the_contrary_side_are_sought():
    """Gradients of class 0 are stored; the opposite ones of the other class must
    get in, more of the same must not."""
    model = method()
    model.net[1] = nn.Linear(4, 2, bias=False)
    nn.init.zeros_(model.net[1].weight)            # p = (1/2, 1/2): gradients of the two classes are opposite
    x = torch.ones(8, 1, 2, 2)
    buffer = Buffer(8, 'cpu', 4, model, seed=1)
    buffer.add_data(x, torch.zeros(8, dtype=torch.long))
    buffer.add_data(x, torch.zeros(8, dtype=torch.long))
    assert buffer.labels.tolist() == [0] * 8
    buffer.add_data(x[:4], torch.ones(4, dtype=torch.long))
    assert 1 <= buffer.labels.sum() <= 4
