"""FlexSplit: choose the bases of one group of tensors (TStore, §4.4).

`phases` is the algorithm; the other modules are what it stands on: `edges` keeps the deltas worth
having, `search` improves a set of bases, `bound` says what no plan can beat, `refine` closes the gap.
"""

from tstore.plan.flexsplit.phases import arrive, assign, replan, split

__all__ = ["arrive", "assign", "replan", "split"]
