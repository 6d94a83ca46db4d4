"""ζ-mixup by hand: Eq. 2 and Eq. 3 in plain Python loops over lists.

Shares no code with zetamix, and uses no torch: what a reader of the paper would write first.
Samples are flat lists of numbers. `ranks[i]` is the rank of batch row i, from 1; 0 leaves it out.
"""

import math


def ranks_from_order(order, batch):
    """The rank of every batch row in an output that mixes the rows in `order`."""
    ranks = [0] * batch
    for position, row in enumerate(order):
        ranks[row] = position + 1
    return ranks


def weights_from_ranks(ranks, gamma):
    """Eq. 3: weight i is ranks[i]**-gamma / C, where C is the sum over 1, 2, … sources."""
    sources = sum(1 for rank in ranks if rank > 0)
    normaliser = math.fsum(float(j) ** -gamma for j in range(1, sources + 1))
    return [float(rank) ** -gamma / normaliser if rank > 0 else 0.0 for rank in ranks]


def mix_samples(samples, weights):
    """Eq. 2: one output, the sum of weight i times sample i."""
    mixed = []
    for feature in range(len(samples[0])):
        parts = [weights[i] * samples[i][feature] for i in range(len(samples))]
        mixed.append(math.fsum(parts))
    return mixed


def mix_labels(labels, weights, num_classes, ignored=None):
    """The soft target of one output: class k gets the weights of the samples labelled k."""
    target = [0.0] * num_classes
    for i in range(len(labels)):
        if labels[i] != ignored:
            target[labels[i]] += weights[i]
    return target


def order_by_distance(samples, anchor, sources):
    """The rows nearest to `anchor` in Euclidean distance, the anchor itself first."""
    others = [row for row in range(len(samples)) if row != anchor]
    others.sort(key=lambda row: math.dist(samples[anchor], samples[row]))
    return [anchor, *others][:sources]
