"""What no plan of a group can beat: the Lagrangian relaxation of the choice of bases.

Every tensor pays a price for being stored. A base is paid by itself and by all tensors whose price
exceeds what their delta of it costs; where the payments exceed what the base costs, the plan gains
the difference. Whatever the prices, their sum less those gains is at most the cost of any plan
(Lagrangian duality, each tensor's "stored once" being what is relaxed; for facility location, see
Beasley 1993). The best prices come within a few per mille, and the bases that are overpaid then
are nearly those of the best plan.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tstore.plan.flexsplit.compiled import kernel
from tstore.plan.flexsplit.edges import Edges
from tstore.plan.flexsplit.search import Bools, State
from tstore.plan.problem import Ints

PATIENCE = 12
"""Steps without a better bound after which steps become half as long."""


@dataclass
class Prices:
    """Prices on their way up to the best bound, by subgradient steps.

    Attributes
    ----------
    edges : Edges
    price : int64 (n,)
        What each tensor pays, from 0 to its offer.
    bound : int
        The best so far.
    paid : bool (n,)
        Which bases the prices of the last look pay for.
    """

    edges: Edges
    price: Ints
    bound: int
    paid: Bools
    _length: float = 1.0
    _since: int = 0

    @classmethod
    def of(cls, edges: Edges, state: State) -> Prices:
        """Start where each tensor pays something between its two cheapest options."""
        price = (state.cheapest + state.second) // 2
        return cls(edges, price, 0, np.zeros(price.size, dtype=np.bool_))

    def step(self, cost: int) -> None:
        """Look at the bound and change the prices.

        Parameters
        ----------
        cost : int
            Of the best plan known (Polyak's rule: steps as long as it is far away).
        """
        excess, slack = np.empty_like(self.price), np.empty_like(self.price)
        bound = _relax(self.edges, self.price, excess, slack)
        self.paid = excess > 0
        self._since += 1
        if bound > self.bound:
            self.bound, self._since = bound, 0
        elif self._since == PATIENCE:
            self._length, self._since = self._length / 2, 0
        squared = int(slack @ slack)
        if squared:
            step = self._length * (cost - bound) / squared
            moved = self.price + np.rint(step * slack).astype(np.int64)
            self.price = np.clip(moved, 0, self.edges.offer)


@kernel
def _relax(edges: Edges, price: Ints, excess: Ints, slack: Ints) -> int:
    """Return the bound that prices give.

    Parameters
    ----------
    edges : Edges
    price : int64 (n,)
    excess : int64 (n,)
        Filled: payments to each base less its cost.
    slack : int64 (n,)
        Filled: 1 less the number of paid bases that each tensor pays for; 0 where its price is at
        its highest and should rise. The slope of the bound.
    """
    bound = 0
    for tensor in range(price.size):
        excess[tensor] = price[tensor] - edges.whole[tensor]
    for tensor in range(price.size):
        bound += price[tensor]
        for e in range(edges.first[tensor], edges.first[tensor + 1]):
            payment = price[tensor] - (edges.options[e] >> 32)
            if payment <= 0:
                break
            excess[edges.options[e] & 0xFFFFFFFF] += payment
    for tensor in range(price.size):
        bound -= max(excess[tensor], 0)
    for tensor in range(price.size):
        slack[tensor] = 1 - int(excess[tensor] > 0)
        for e in range(edges.first[tensor], edges.first[tensor + 1]):
            if edges.options[e] >> 32 >= price[tensor]:
                break
            slack[tensor] -= int(excess[edges.options[e] & 0xFFFFFFFF] > 0)
        if price[tensor] == edges.offer[tensor]:
            slack[tensor] = min(slack[tensor], 0)
    return bound
