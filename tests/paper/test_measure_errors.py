"""Errors of the measures: what was expected and what was got."""

import re

import pytest
import torch

from paper.measure.dimension import local_dimension
from paper.measure.diversity import classes_per_label, coverage, relative_distance
from paper.measure.realism import density, judge

X = torch.rand(20, 3)
LINE = torch.arange(10.0).unsqueeze(1)
NAN = X.log().log()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: local_dimension(X, 20), "neighbours=20 needs at least 21 points, got 20."),
        (lambda: local_dimension(X, 1), "neighbours must be at least 2, got 1."),
        (lambda: local_dimension(X, 8.0), "neighbours must be an int, got float"),
        (lambda: local_dimension(X, None), "neighbours must be an int, got NoneType"),
        (lambda: local_dimension(X, [4, 1]), "neighbours must be at least 2, got 1."),
        (lambda: local_dimension(X, []), "neighbours must contain at least one number, got none."),
        (lambda: local_dimension(X[:, 0], 3), "points must be [n, features], got [20]."),
        (lambda: local_dimension(X[:, :0], 3), "points must be [n, features], got [20, 0]."),
        (lambda: local_dimension(X.to(torch.complex64), 3), "must be real numbers, got torch.comp"),
        (lambda: local_dimension(NAN, 3), "points and their squares must be finite, got NaN"),
        (lambda: local_dimension(X, 3, eigenvalue_ratio=5), "between 0 and 1, got 5."),
        (lambda: local_dimension(X, 3, memory_gb=0), "memory_gb must be finite and at least 0.01"),
        (lambda: local_dimension([[1.0]], 3), "points must be a tensor, got list."),
        (lambda: relative_distance(X, X[:, :2]), "same shape, got [20, 3] and [20, 2]."),
        (lambda: relative_distance(LINE, LINE[:1]), "one output and two originals, got 10 and 1."),
        (lambda: relative_distance(LINE, 0 * LINE), "Every original has an exact duplicate"),
        (lambda: coverage(LINE, LINE, neighbours=10), "needs at least 11 originals, got 10."),
        (lambda: classes_per_label(torch.eye(2), threshold=2), "between 0 and 1, got 2."),
        (lambda: judge(lambda x: X[:, :2], X, X), "the same shape, got [20, 2] and [20, 3]."),
        (lambda: density(X[:0, 0], X[:, 0]), "one value and two grid points, got 0 and 20."),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        call()
