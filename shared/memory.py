"""Leases over preallocated buffers: who may use which slot, and until when.

The buffers themselves are the executors' (`shared.executors`); here is only the book-keeping, so that it can be checked.
A pool is all slots of one kind (`PoolKey`: one entry of one plan). A lease names a slot and the slot's generation, which
changes each time that the slot is freed: a release by somebody who no longer holds it is found out instead of freeing
another's data. A lease can have several holders (the executor that reads it, a socket that sends from it); the slot is
free when and only when the last has let go.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shared.errors import InvariantBroken


class PoolKey(msgspec.Struct, frozen=True, gc=False):
    """The slots for rows that enter `program` of `contract` at cut `first`."""

    contract: str
    program: int
    first: int


class Lease(msgspec.Struct, frozen=True, gc=False):
    """The right to use slot `slot` of a pool while its generation is `generation`."""

    pool: PoolKey
    slot: int
    generation: int


class _Pool:
    __slots__ = ("free", "generations", "high_water", "holders")

    def __init__(self, slots: int) -> None:
        self.free = list(range(slots - 1, -1, -1))
        self.generations = [0] * slots
        self.holders = [0] * slots
        self.high_water = 0


class Arena:
    """All pools of a process, sized once."""

    def __init__(self, slots: Mapping[PoolKey, int]) -> None:
        self._pools = {key: _Pool(count) for key, count in slots.items()}

    def acquire(self, key: PoolKey) -> Lease | None:
        """A free slot with one holder, or None where all are in use or the pool does not exist."""
        pool = self._pools.get(key)
        if pool is None or not pool.free:
            return None
        slot = pool.free.pop()
        pool.holders[slot] = 1
        pool.high_water = max(pool.high_water, len(pool.holders) - len(pool.free))
        return Lease(key, slot, pool.generations[slot])

    def _checked(self, lease: Lease) -> _Pool:
        pool = self._pools[lease.pool]
        if pool.holders[lease.slot] < 1 or pool.generations[lease.slot] != lease.generation:
            raise InvariantBroken(
                f"lease {lease} is not held: its slot is at generation {pool.generations[lease.slot]}"
            )
        return pool

    def hold(self, lease: Lease) -> None:
        """One more holder. Raises `InvariantBroken` where the lease is over."""
        self._checked(lease).holders[lease.slot] += 1

    def release(self, lease: Lease) -> bool:
        """One holder less; True where that freed the slot. Raises `InvariantBroken` where the lease is over."""
        pool = self._checked(lease)
        pool.holders[lease.slot] -= 1
        if pool.holders[lease.slot]:
            return False
        pool.generations[lease.slot] += 1
        pool.free.append(lease.slot)
        return True

    def in_use(self) -> int:
        """Slots with at least one holder, over all pools."""
        return sum(len(p.holders) - len(p.free) for p in self._pools.values())

    def high_water(self, key: PoolKey) -> int:
        """The most slots of a pool that were ever in use at once."""
        return self._pools[key].high_water

    def validate(self) -> None:
        """Raises `InvariantBroken` where the free lists and the holders disagree."""
        for key, pool in self._pools.items():
            held = {i for i, n in enumerate(pool.holders) if n}
            if (
                len(set(pool.free)) != len(pool.free)
                or held & set(pool.free)
                or len(held) + len(pool.free) != len(pool.holders)
            ):
                raise InvariantBroken(
                    f"pool {key}: free {sorted(pool.free)}, held {sorted(held)} of {len(pool.holders)}"
                )
