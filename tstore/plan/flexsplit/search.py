"""Local search for the bases of one group: promote, demote, swap.

A step changes which tensors are bases, and every tensor then takes its cheapest option. Each tensor
knows its cheapest and its second cheapest option (as in FastPAM, Schubert and Rousseeuw), so that
the gain of a step needs only a look at the clients of the base that comes.

`gain` below is always how much the total cost falls. All kernels are deterministic; costs are
integers, see `Edges`.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tstore.plan.flexsplit.compiled import kernel
from tstore.plan.flexsplit.edges import Edges
from tstore.plan.problem import Ints

Bools: TypeAlias = NDArray[np.bool_]

NONE = -1
"""No new base: the tensor costs its offer."""


class State(NamedTuple):
    """Which of n tensors are bases, and what each tensor costs as a delta of them.

    The last five follow from `is_base`; they are kept for bases too, as if those were deltas.

    Attributes
    ----------
    is_base : bool (n,)
    cheapest, second : int64 (n,)
        Cost of the two cheapest bases, or the offer.
    base, second_base : int64 (n,)
        Which bases these are; `NONE` for the offer.
    loss : int64 (n,)
        Of each base, what its deltas would lose with it.
    """

    is_base: Bools
    cheapest: Ints
    base: Ints
    second: Ints
    second_base: Ints
    loss: Ints


def state_of(edges: Edges, is_base: Bools) -> State:
    """State with these bases; `is_base` is copied."""
    n = is_base.size
    state = State(is_base.copy(), *(np.zeros(n, dtype=np.int64) for _ in range(5)))
    reset(edges, state)
    return state


@kernel
def reset(edges: Edges, state: State) -> None:
    """Compute everything that follows from `is_base`."""
    for tensor in range(state.base.size):
        _look_up(edges, state, tensor)
        state.loss[tensor] = 0
    for tensor in range(state.base.size):
        _count(state, tensor, 1)


@kernel
def cost_of(edges: Edges, state: State, tensor: int) -> int:
    """Cost of one tensor."""
    cost: int = edges.whole[tensor] if state.is_base[tensor] else state.cheapest[tensor]
    return cost


@kernel
def total(edges: Edges, state: State) -> int:
    """Cost of all tensors."""
    cost = 0
    for tensor in range(state.base.size):
        cost += cost_of(edges, state, tensor)
    return cost


@kernel
def promote(edges: Edges, state: State) -> None:
    """Make tensors bases while that gains anything, always the one that gains the most.

    A gain only falls as bases are added, so the gains of an earlier look are upper bounds: the top
    of the heap is looked at again, and taken if it stays the top. On a tie the lowest row wins.
    """
    heap = [(-_promotion(edges, state, tensor), tensor) for tensor in range(state.base.size)]
    heapq.heapify(heap)
    while len(heap) > 0 and heap[0][0] < 0:
        tensor = heapq.heappop(heap)[1]
        entry = (-_promotion(edges, state, tensor), tensor)
        if len(heap) > 0 and heap[0] < entry:
            heapq.heappush(heap, entry)
        elif entry[0] < 0:
            _add(edges, state, tensor)


@kernel
def improve(edges: Edges, state: State, passes: int) -> None:
    """Demote, promote and swap, tensor by tensor, until nothing gains or after `passes` passes."""
    n = state.base.size
    bonus, touched = np.zeros(n, np.int64), np.empty(n, np.int64)
    since = 0
    for turn in range(passes * n):
        if since == n:
            return
        tensor = turn % n
        since += 1
        if state.is_base[tensor]:
            if _demotion(edges, state, tensor) >= 0:
                _remove(edges, state, tensor)
                since = 0
        else:
            gain, other = _swap(edges, state, tensor, bonus, touched)
            if gain > 0:
                _add(edges, state, tensor)
                if other != NONE:
                    _remove(edges, state, other)
                since = 0


@kernel
def _look_up(edges: Edges, state: State, tensor: int) -> None:
    """Find the two cheapest options of a tensor; its options are sorted."""
    state.cheapest[tensor] = state.second[tensor] = edges.offer[tensor]
    state.base[tensor] = state.second_base[tensor] = NONE
    for e in range(edges.first[tensor], edges.first[tensor + 1]):
        base = edges.options[e] & 0xFFFFFFFF
        if state.is_base[base]:
            if state.base[tensor] != NONE:
                state.second[tensor] = edges.options[e] >> 32
                state.second_base[tensor] = base
                return
            state.cheapest[tensor] = edges.options[e] >> 32
            state.base[tensor] = base


@kernel
def _count(state: State, tensor: int, sign: int) -> None:
    """Add what a delta would lose without its base to that base, or take it away again."""
    if not state.is_base[tensor] and state.base[tensor] != NONE:
        lost = state.second[tensor] - state.cheapest[tensor]
        state.loss[state.base[tensor]] += sign * lost


@kernel
def _add(edges: Edges, state: State, new: int) -> None:
    """Make a tensor a base."""
    _count(state, new, -1)
    state.is_base[new] = True
    state.loss[new] = 0
    for e in range(edges.first_client[new], edges.first_client[new + 1]):
        client, cost = edges.clients[e], edges.costs[e]
        if cost >= state.second[client]:
            continue
        _count(state, client, -1)
        if cost < state.cheapest[client]:
            state.second[client] = state.cheapest[client]
            state.second_base[client] = state.base[client]
            state.cheapest[client] = cost
            state.base[client] = new
        else:
            state.second[client] = cost
            state.second_base[client] = new
        _count(state, client, 1)


@kernel
def _remove(edges: Edges, state: State, old: int) -> None:
    """Make a base a delta, or store it whole without using it."""
    state.is_base[old] = False
    for e in range(edges.first_client[old], edges.first_client[old + 1]):
        client = edges.clients[e]
        if state.base[client] == old or state.second_base[client] == old:
            _count(state, client, -1)
            _look_up(edges, state, client)
            _count(state, client, 1)
    _count(state, old, 1)


@kernel
def _promotion(edges: Edges, state: State, new: int) -> int:
    """Gain of making a tensor a base; 0 for one that is."""
    if state.is_base[new]:
        return 0
    gain: int = state.cheapest[new] - edges.whole[new]
    for e in range(edges.first_client[new], edges.first_client[new + 1]):
        client = edges.clients[e]
        if not state.is_base[client]:
            gain += max(state.cheapest[client] - edges.costs[e], 0)
    return gain


@kernel
def _demotion(edges: Edges, state: State, old: int) -> int:
    """Gain of a base becoming a delta."""
    gain: int = edges.whole[old] - state.cheapest[old] - state.loss[old]
    return gain


@kernel
def _swap(edges: Edges, state: State, new: int, bonus: Ints, touched: Ints) -> tuple[int, int]:
    """Best gain of a tensor becoming a base, alone or in place of another base.

    ``bonus[b]`` is by how much the gain of both exceeds the gains of promoting `new` and of
    demoting b: clients of b that find `new`, at a cost between their cheapest and second cheapest,
    and b itself.

    Parameters
    ----------
    new : int
        Not a base.
    bonus : int64 (n,)
        Scratch: 0, and left so.
    touched : int64 (n,)
        Scratch.

    Returns
    -------
    gain : int
    other : int
        The base that `new` replaces; `NONE` if none.
    """
    n_touched = 0
    gain = state.cheapest[new] - edges.whole[new]
    if state.base[new] != NONE:
        lost = state.second[new] - state.cheapest[new]
        n_touched = _note(bonus, touched, n_touched, state.base[new], lost)
    for e in range(edges.first_client[new], edges.first_client[new + 1]):
        client, cost = edges.clients[e], edges.costs[e]
        if cost >= state.second[client]:
            continue
        saved = max(state.cheapest[client] - cost, 0)
        if state.is_base[client]:
            n_touched = _note(bonus, touched, n_touched, client, saved)
            continue
        gain += saved
        if state.base[client] != NONE:
            lost = state.second[client] - max(cost, state.cheapest[client])
            n_touched = _note(bonus, touched, n_touched, state.base[client], lost)
    best, other = gain, NONE
    for t in range(n_touched):
        old = touched[t]
        both = gain + _demotion(edges, state, old) + bonus[old]
        bonus[old] = 0
        if both > best:
            best, other = both, old
    return best, other


@kernel
def _note(bonus: Ints, touched: Ints, n_touched: int, base: int, amount: int) -> int:
    """Add to the bonus of a base, and return how many bases have one."""
    if amount == 0:
        return n_touched
    if bonus[base] == 0:
        touched[n_touched] = base
        n_touched += 1
    bonus[base] += amount
    return n_touched
