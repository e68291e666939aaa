from __future__ import annotations

import numpy as np
import pytest

from shardkeep.demo.model import Classifier, descend


def batch(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.random((rows, 2, 3, 1), np.float32), rng.integers(0, 4, rows)


def test_gradient_agrees_with_finite_differences() -> None:
    model = Classifier(inputs=6, hidden=5, classes=4, seed=3, dtype=np.float64)
    images, labels = batch(7)
    claimed = model.evaluate(images, labels).gradient_sum
    # Central differences; ReLU has no kink within 1e-6 of these inputs.
    step = 1e-6
    for position in range(len(model.parameters)):
        kept = model.parameters[position]
        model.parameters[position] = kept + step
        above = model.evaluate(images, labels).loss_sum
        model.parameters[position] = kept - step
        below = model.evaluate(images, labels).loss_sum
        model.parameters[position] = kept
        assert claimed[position] == pytest.approx((above - below) / (2 * step), abs=1e-6), position


def test_parts_of_a_batch_add_up_to_the_whole() -> None:
    model = Classifier(inputs=6, hidden=5, classes=4, dtype=np.float64)
    images, labels = batch(9)
    whole = model.evaluate(images, labels)
    parts = [model.evaluate(images[a:b], labels[a:b]) for a, b in ((0, 4), (4, 4), (4, 9))]
    assert sum(part.loss_sum for part in parts) == pytest.approx(whole.loss_sum)
    assert np.allclose(sum(part.gradient_sum for part in parts), whole.gradient_sum)
    assert np.concatenate([part.predicted for part in parts]).tolist() == whole.predicted.tolist()


def test_no_rows_give_no_gradient() -> None:
    outcome = Classifier(inputs=6, hidden=5, classes=4).evaluate(*batch(0))
    assert outcome.loss_sum == 0
    assert not outcome.gradient_sum.any()
    assert outcome.predicted.shape == outcome.confidence.shape == (0,)


def test_learns_what_can_be_learned() -> None:
    rng = np.random.default_rng(1)
    centres = rng.random((4, 6))
    labels = rng.integers(0, 4, 400)
    images = (centres[labels] + rng.normal(0, 0.05, (400, 6))).astype(np.float32)
    model = Classifier(inputs=6, hidden=16, classes=4)
    velocity = np.zeros_like(model.parameters)
    first = model.evaluate(images, labels).loss_sum
    for start in [*range(0, 400, 40)] * 10:
        chosen = slice(start, start + 40)
        descend(model.parameters, velocity, model.evaluate(images[chosen], labels[chosen]).gradient_sum / 40)
    last = model.evaluate(images, labels)
    assert last.loss_sum < first / 4
    assert (last.predicted == labels).mean() > 0.95


def test_equal_seeds_give_equal_weights() -> None:
    one, same, other = (Classifier(inputs=6, hidden=5, classes=4, seed=seed).parameters for seed in (1, 1, 2))
    assert one.dtype == np.float32
    assert (one == same).all()
    assert (one != other).any()


def test_huge_inputs_overflow_nowhere() -> None:
    model = Classifier(inputs=6, hidden=5, classes=4)
    outcome = model.evaluate(np.full((2, 6), 1e30, np.float32), np.array([0, 1]))
    assert np.isfinite(outcome.loss_sum)
    assert np.isfinite(outcome.confidence).all()
