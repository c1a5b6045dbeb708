"""The arena against a model that knows who holds what: no slot has two holders, and only its holder can free it."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from shared.errors import InvariantBroken
from shared.memory import Arena, Lease, PoolKey
from shared.slots import SlotClass

CONTRACTS = ("a", "b")
POOLS = [PoolKey(contract, program, first) for contract in CONTRACTS for program in (0, 1) for first in (0, 1)]
UNKNOWN = PoolKey("never made", 0, 0)
ROWS, NBYTES = 4, 400


class ArenaMachine(RuleBasedStateMachine):
    """Leases are taken, given back, given back twice, and forged."""

    held = Bundle("held")
    over = Bundle("over")

    @initialize(sizes=st.dictionaries(st.sampled_from(POOLS), st.integers(0, 4), min_size=1))
    def start(self, sizes: dict[PoolKey, int]) -> None:
        self.sizes = sizes
        self.arena = Arena(SlotClass(p.contract, p.program, p.first, n, ROWS, NBYTES) for p, n in sizes.items())
        self.asked = 0
        self.holders: dict[tuple[PoolKey, int], Lease] = {}
        self.given: set[Lease] = set()

    def used(self, pool: PoolKey) -> int:
        return sum(1 for key, _ in self.holders if key == pool)

    @rule(target=held, pool=st.sampled_from([*POOLS, UNKNOWN]), rows=st.integers(1, ROWS))
    def take(self, pool: PoolKey, rows: int) -> Lease | MultipleResults[Lease]:
        lease = self.arena.acquire(pool, rows)
        self.asked += 1
        if self.used(pool) >= self.sizes.get(pool, 0):
            assert lease is None, "more slots than there are"
            return multiple()
        assert lease is not None, "a free slot is refused"
        assert lease.pool == pool
        assert 0 <= lease.slot < self.sizes[pool]
        assert (pool, lease.slot) not in self.holders, "a slot has two holders"
        assert lease not in self.given, "a lease is given out twice"
        self.holders[pool, lease.slot] = lease
        self.given.add(lease)
        return lease

    @rule(target=over, lease=consumes(held))
    def give_back(self, lease: Lease) -> Lease:
        self.arena.release(lease)
        del self.holders[lease.pool, lease.slot]
        return lease

    @rule(lease=over)
    def give_back_again(self, lease: Lease) -> None:
        with pytest.raises(InvariantBroken):
            self.arena.release(lease)

    @rule(lease=held, step=st.sampled_from([-1, 1, 5]))
    def give_back_with_another_generation(self, lease: Lease, step: int) -> None:
        with pytest.raises(InvariantBroken):
            self.arena.release(Lease(lease.pool, lease.slot, lease.generation + step))

    @rule(pool=st.sampled_from([*POOLS, UNKNOWN]), slot=st.integers(-3, 5), generation=st.integers(-1, 3))
    def give_back_what_was_never_taken(self, pool: PoolKey, slot: int, generation: int) -> None:
        forged = Lease(pool, slot, generation)
        if self.holders.get((pool, slot)) == forged:
            return
        with pytest.raises(InvariantBroken):
            self.arena.release(forged)

    @invariant()
    def it_counts_what_is_held(self) -> None:
        if hasattr(self, "arena"):
            self.arena.validate()
            figures = self.arena.figures()
            assert self.arena.in_use() == figures.in_use == len(self.holders) <= figures.high_water
            assert (figures.leases, figures.leases + figures.refused) == (len(self.given), self.asked)
            assert 0 <= figures.unused_share < 1


TestArena = ArenaMachine.TestCase
TestArena.settings = settings(max_examples=100, stateful_step_count=40)
