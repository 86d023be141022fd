"""The deltas of one group that are worth having, as a sparse graph with costs in integers.

Only new tensors are nodes. Stored bases are free and always there, so the cheapest of them is just
what a tensor costs without a new base, its *offer*; a tensor without any has its standalone ratio
as offer. An edge is a delta that is allowed and cheaper than the offer.

Costs are ratios in fixed point: sums are exact and do not depend on their order.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tstore.plan.flexsplit.compiled import kernel
from tstore.plan.pricing import limits, new_ids, price
from tstore.plan.problem import STANDALONE, Assignment, Floats, Ints, Problem

PAIRS = 1 << 19
"""Pairs priced at a time."""

Int32s: TypeAlias = NDArray[np.int32]

_ONE = 1 << 30
"""1.0 in fixed point; costs fit in 32 bits with a bit to spare."""
_NO_EDGE = np.iinfo(np.int64).max
BASE_BITS = 32


class Edges(NamedTuple):
    """Deltas worth having among n tensors, both by target and by base.

    Attributes
    ----------
    whole : int64 (n,)
        Cost of storing each tensor whole.
    offer : int64 (n,)
        What it costs without a new base, at most `whole`.
    first : int64 (n + 1,)
        Where the options of each tensor start.
    options : int64 (e,)
        ``cost << 32 | base``, ascending for each tensor: cheapest first, lowest row on a tie.
    first_client : int64 (n + 1,)
        Where the clients of each base start.
    clients : int32 (e,)
        Tensors that have the base among their options, ascending.
    costs : int32 (e,)
        Their costs.
    """

    whole: Ints
    offer: Ints
    first: Ints
    options: Ints
    first_client: Ints
    clients: Int32s
    costs: Int32s


def all_edges(problem: Problem, offers: Assignment) -> Edges:
    """Price all pairs of new tensors: 16 bytes for each pair that is worth having.

    Parameters
    ----------
    problem : Problem
        n tensors take time and memory of n².
    offers : Assignment
        The plan without new bases.
    """
    ids = new_ids(problem)
    n = ids.size
    counts = np.zeros(n, dtype=np.int64)
    options = np.empty(n * n, dtype=np.int64)  # pages that stay untouched take no memory
    end = 0
    step = max(PAIRS // max(n, 1), 1)
    for start in range(0, n, step):
        rows = np.arange(start, min(start + step, n))
        ratio = problem.costs.ratios(ids[rows], ids)
        keys = _keys(problem, offers, rows, np.arange(n), ratio)
        kept = keys != _NO_EDGE
        counts[rows] = kept.sum(axis=1)
        options[end : end + counts[rows].sum()] = keys[kept]
        end += counts[rows].sum()
    return _edges(problem, offers, counts, options[:end])


class Likely(NamedTuple):
    """Some bases for each new tensor.

    Attributes
    ----------
    bases : int64 (n, c)
        Ids; -1 for none. Stored ones count as none: offers tell all about them.
    ratio : float64 (n, c)
        Predicted stored/raw; infinite where there is no base.
    """

    bases: Ints
    ratio: Floats


def likely(problem: Problem, assignment: Assignment, bases: Ints) -> Likely:
    """Price some bases of each tensor.

    Parameters
    ----------
    problem : Problem
    assignment : Assignment
        Its clusters tell which tensors have bases in common.
    bases : int64 (n, c)
        Ids; -1 for none.
    """
    ids = new_ids(problem)
    bases = np.where(bases < problem.n_stored, STANDALONE, bases)
    order = np.argsort(np.where(assignment.base == STANDALONE, ids, assignment.base), kind="stable")
    ratio = np.empty(bases.shape)
    ratio[order] = price(problem, ids[order], bases[order])
    return Likely(bases, ratio)


def likely_edges(problem: Problem, offers: Assignment, *choices: Likely) -> Edges:
    """Only deltas of likely bases.

    Parameters
    ----------
    problem : Problem
    offers : Assignment
        The plan without new bases.
    choices : Likely
        Together they may name a base of a tensor more than once.
    """
    bases, ratio = (np.concatenate(columns, axis=1) for columns in zip(*choices, strict=True))
    rows = np.arange(len(bases))
    keys = _keys(problem, offers, rows, bases - problem.n_stored, ratio)
    keys[:, 1:][keys[:, 1:] == keys[:, :-1]] = _NO_EDGE
    kept = keys != _NO_EDGE
    return _edges(problem, offers, kept.sum(axis=1), keys[kept])


def _keys(
    problem: Problem, offers: Assignment, rows: Ints, bases: Ints, ratio: Floats
) -> NDArray[np.int64]:
    """Options of `rows`, ascending, (m, c); `_NO_EDGE` for those not worth having."""
    cost = _fixed(problem, np.fmin(ratio, problem.standalone[rows, None]))
    kept = (ratio <= limits(problem)[rows, None]) & (rows[:, None] != bases)
    kept &= cost < _fixed(problem, offers.ratio[rows, None])
    keys: Ints = np.where(kept, (cost << BASE_BITS) | bases, _NO_EDGE)
    keys.sort(axis=1)
    return keys


def _fixed(problem: Problem, ratio: Floats) -> Ints:
    """Ratios in fixed point, of a group whose largest standalone ratio fits in 31 bits."""
    scale = _ONE / max(1.0, float(problem.standalone.max(initial=0.0)))
    return np.rint(ratio * scale).astype(np.int64)


def _edges(problem: Problem, offers: Assignment, counts: Ints, options: Ints) -> Edges:
    """Edges by target, arranged by base as well."""
    n = problem.standalone.size
    first_client = np.zeros(n + 1, dtype=np.int64)
    clients = np.empty(options.size, dtype=np.int32)
    costs = np.empty(options.size, dtype=np.int32)
    first = np.concatenate([[0], np.cumsum(counts)])
    _by_base(first, options, first_client, clients, costs)
    whole, offer = _fixed(problem, problem.standalone), _fixed(problem, offers.ratio)
    return Edges(whole, offer, first, options, first_client, clients, costs)


@kernel
def _by_base(
    first: Ints, options: Ints, first_client: Ints, clients: Int32s, costs: Int32s
) -> None:
    """Fill the last three of `Edges` from `first` and `options`; `first_client` starts as 0."""
    for option in options:
        first_client[(option & 0xFFFFFFFF) + 1] += 1
    for base in range(first.size - 1):
        first_client[base + 1] += first_client[base]
    end = first_client[:-1].copy()
    for tensor in range(first.size - 1):
        for e in range(first[tensor], first[tensor + 1]):
            base = options[e] & 0xFFFFFFFF
            clients[end[base]] = tensor
            costs[end[base]] = options[e] >> BASE_BITS
            end[base] += 1
