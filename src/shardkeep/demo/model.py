"""A classifier with one hidden layer, its gradient, and gradient descent with momentum.

All parameters are one flat float32 vector, so the gradients of two ranks are combined by one addition and a
checkpoint is two arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Classifier", "Outcome", "descend"]

Floats = npt.NDArray[np.floating[Any]]

_LEARNING_RATE, _MOMENTUM = 0.03, 0.9
_CENTRE = 0.3  # about the mean brightness of a digit; training converges faster with inputs around zero


@dataclass(frozen=True)
class Outcome:
    """Result of one pass over some rows.

    Attributes
    ----------
    loss_sum : float
        Cross entropy in nats, summed over the rows.
    gradient_sum : ndarray, shape (parameters,)
        Gradient of `loss_sum`. A sum, not a mean, so that the mean over all ranks weighs every row equally.
    predicted : ndarray of int64, shape (rows,)
    confidence : ndarray of float32, shape (rows,)
        Probability of the predicted class.
    """

    loss_sum: float
    gradient_sum: Floats
    predicted: npt.NDArray[np.int64]
    confidence: npt.NDArray[np.float32]


class Classifier:
    """The classifier ``softmax(relu(x·W1 + b1)·W2 + b2)``.

    Parameters
    ----------
    inputs, hidden, classes : int
        Width of each layer.
    seed : int, optional
        Seed of the initial weights (He's scaling).
    dtype : optional
        Type of the parameters; float32 for training, float64 for a gradient check.

    Attributes
    ----------
    parameters : ndarray, shape (parameters,)
        W1, b1, W2 and b2, concatenated; the optimiser writes them in place.

    Examples
    --------
    >>> model = Classifier(inputs=3072, hidden=48, classes=10)
    >>> model.parameters.shape
    (147994,)
    >>> images = np.zeros((2, 32, 32, 3), np.float32)
    >>> model.probabilities(images).shape
    (2, 10)
    """

    def __init__(
        self, *, inputs: int, hidden: int, classes: int, seed: int = 0, dtype: npt.DTypeLike = np.float32
    ) -> None:
        self._shapes = ((inputs, hidden), (hidden,), (hidden, classes), (classes,))
        rng = np.random.default_rng([seed, 1])
        w1 = rng.normal(0.0, np.sqrt(2 / inputs), inputs * hidden)
        w2 = rng.normal(0.0, np.sqrt(1 / hidden), hidden * classes)
        self.parameters: Floats = np.concatenate([w1, np.zeros(hidden), w2, np.zeros(classes)]).astype(dtype)

    def probabilities(self, images: Floats) -> Floats:
        """Return the class probabilities, shape (rows, classes), of images of shape (rows, …)."""
        return self._forward(self._flatten(images))[1]

    def evaluate(self, images: Floats, labels: npt.NDArray[np.int64]) -> Outcome:
        """Return loss, gradient and predictions for some rows; zeros and empty arrays for no rows.

        Parameters
        ----------
        images : ndarray, shape (rows, …)
            Values in [0, 1].
        labels : ndarray of int64, shape (rows,)
        """
        x = self._flatten(images)
        hidden, probabilities = self._forward(x)
        rows = np.arange(len(labels))
        tiny = np.finfo(probabilities.dtype).tiny
        loss_sum = -float(np.log(np.maximum(probabilities[rows, labels], tiny)).sum(dtype=np.float64))

        gradient = np.empty_like(self.parameters)
        g_w1, g_b1, g_w2, g_b2 = self._views(gradient)
        g_logits = probabilities.copy()
        g_logits[rows, labels] -= 1
        np.matmul(hidden.T, g_logits, out=g_w2)
        g_logits.sum(axis=0, out=g_b2)
        g_hidden = (g_logits @ self._views(self.parameters)[2].T) * (hidden > 0)
        np.matmul(x.T, g_hidden, out=g_w1)
        g_hidden.sum(axis=0, out=g_b1)

        return Outcome(
            loss_sum=loss_sum,
            gradient_sum=gradient,
            predicted=probabilities.argmax(axis=1).astype(np.int64),
            confidence=probabilities.max(axis=1, initial=0).astype(np.float32),
        )

    def _flatten(self, images: Floats) -> Floats:
        flat: Floats = images.reshape(len(images), self._shapes[0][0]).astype(self.parameters.dtype)
        flat -= _CENTRE
        return flat

    def _forward(self, x: Floats) -> tuple[Floats, Floats]:
        w1, b1, w2, b2 = self._views(self.parameters)
        hidden = np.maximum(x @ w1 + b1, 0)
        logits = hidden @ w2 + b2
        logits -= logits.max(axis=1, keepdims=True)
        exponentials = np.exp(logits)
        return hidden, exponentials / exponentials.sum(axis=1, keepdims=True)

    def _views(self, flat: Floats) -> list[Floats]:
        views, start = [], 0
        for shape in self._shapes:
            size = int(np.prod(shape))
            views.append(flat[start : start + size].reshape(shape))
            start += size
        return views


def descend(parameters: Floats, velocity: Floats, gradient: Floats) -> None:
    """Make a step of gradient descent with momentum: ``v ← 0.9·v + g``, ``parameters ← parameters - 0.03·v``.

    Parameters
    ----------
    parameters, velocity : ndarray, shape (parameters,)
        They are changed in place. `velocity` is the whole state of the optimiser, zero at the start.
    gradient : ndarray, shape (parameters,)
        Mean gradient of the step.

    Examples
    --------
    >>> parameters, velocity = np.array([1.0, 2.0], np.float32), np.zeros(2, np.float32)
    >>> descend(parameters, velocity, np.array([10.0, 0.0], np.float32))
    >>> [f"{one:.1f}" for one in parameters], velocity.tolist()
    (['0.7', '2.0'], [10.0, 0.0])
    """
    velocity *= _MOMENTUM
    velocity += gradient
    parameters -= _LEARNING_RATE * velocity
