"""Leases over preallocated buffers: who may use which slot, and until when.

The buffers themselves are the executors' (`shared.executors`); here is only the book-keeping, so that it can be checked.
A pool is all slots of one kind (`PoolKey`: one entry of one plan). A lease names a slot and the slot's generation, which
changes each time that the slot is freed: a release by somebody who no longer holds it is found out instead of freeing
another's data. A lease has one holder, the launch: what is sent has left the slot before (sends copy).
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
    __slots__ = ("free", "generations", "held")

    def __init__(self, slots: int) -> None:
        self.free = list(range(slots - 1, -1, -1))
        self.generations = [0] * slots
        self.held = [False] * slots


class Arena:
    """All pools of a process, sized once."""

    def __init__(self, slots: Mapping[PoolKey, int]) -> None:
        self._pools = {key: _Pool(count) for key, count in slots.items()}

    def acquire(self, key: PoolKey) -> Lease | None:
        """A free slot, or None where all are in use or the pool does not exist."""
        pool = self._pools.get(key)
        if pool is None or not pool.free:
            return None
        slot = pool.free.pop()
        pool.held[slot] = True
        return Lease(key, slot, pool.generations[slot])

    def release(self, lease: Lease) -> None:
        """The slot is free again. Raises `InvariantBroken` where the lease is over."""
        pool = self._pools.get(lease.pool)
        if pool is None or not 0 <= lease.slot < len(pool.held):
            raise InvariantBroken(f"lease {lease} is of no slot of this arena")
        if not pool.held[lease.slot] or pool.generations[lease.slot] != lease.generation:
            raise InvariantBroken(
                f"lease {lease} is not held: its slot is at generation {pool.generations[lease.slot]}"
            )
        pool.held[lease.slot] = False
        pool.generations[lease.slot] += 1
        pool.free.append(lease.slot)

    def in_use(self) -> int:
        """Slots that are leased, over all pools."""
        return sum(len(p.held) - len(p.free) for p in self._pools.values())

    def validate(self) -> None:
        """Raises `InvariantBroken` where the free lists and the leases disagree."""
        for key, pool in self._pools.items():
            held = {i for i, taken in enumerate(pool.held) if taken}
            if (
                len(set(pool.free)) != len(pool.free)
                or held & set(pool.free)
                or len(held) + len(pool.free) != len(pool.held)
            ):
                raise InvariantBroken(f"pool {key}: free {sorted(pool.free)}, held {sorted(held)} of {len(pool.held)}")
