"""Mixing by hand: Eq. 2 and Eq. 3 and boxes, in plain Python loops over lists.

Shares no code with zetamix, and uses no torch: what a reader of the paper would write first.
Samples are flat lists of numbers. `ranks[i]` is the rank of batch row i, from 1; 0 leaves it out.
"""

import math


def weights_from_ranks(ranks, gamma):
    """Eq. 3: weight i is ranks[i]**-gamma / C, where C is the sum over 1, 2, … sources."""
    sources = sum(1 for rank in ranks if rank > 0)
    normaliser = math.fsum(float(j) ** -gamma for j in range(1, sources + 1))
    return [float(rank) ** -gamma / normaliser if rank > 0 else 0.0 for rank in ranks]


def weights_by_row(order, weights, batch):
    """The weight of every batch row; a row that is named twice counts twice."""
    by_row = [0.0] * batch
    for row, weight in zip(order, weights, strict=True):
        by_row[row] += weight
    return by_row


def mix_samples(samples, weights):
    """Eq. 2: one output, the sum of weight i times sample i."""
    mixed = []
    for feature in range(len(samples[0])):
        parts = [weights[i] * samples[i][feature] for i in range(len(samples))]
        mixed.append(math.fsum(parts))
    return mixed


def keep_variance(mixed, weights, means):
    """Deviations from the mean of each feature, divided by the 2-norm of the weights."""
    norm = math.sqrt(math.fsum(weight * weight for weight in weights))
    return [mean + (value - mean) / norm for value, mean in zip(mixed, means, strict=True)]


def owners(boxes, height, width):
    """For every pixel, row by row: which box covers it last; None if none does."""
    covering = [None] * (height * width)
    for number, (top, left, bottom, right) in enumerate(boxes):
        for row in range(top, bottom):
            for column in range(left, right):
                covering[row * width + column] = number
    return covering


def paste(samples, order, boxes, height, width):
    """One pasted output: every pixel, in all channels, is that of the last box that covers it."""
    covering = owners(boxes, height, width)
    return [
        samples[order[covering[feature % (height * width)]]][feature]
        for feature in range(len(samples[0]))
    ]
