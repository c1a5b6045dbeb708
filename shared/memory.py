"""Leases over preallocated buffers: who may use which slot, and until when.

The buffers themselves are the executors' (`shared.executors`); here is only the book-keeping, so that it can be checked.
A pool is all slots of one kind (`PoolKey`: one entry of one plan). A lease names a slot and the slot's generation, which
changes each time that the slot is freed: a release by somebody who no longer holds it is found out instead of freeing
another's data, and so is a run that comes to a slot with an old lease (`memory.poison`). A lease has one holder, the launch:
what is sent has left the slot before (sends copy).

The loop's thread alone leases and frees, so that a pool needs no lock and threads need no caches of their own.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shared.errors import InvariantBroken
from shared.slots import SlotClass


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


class ArenaFigures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What became of the slots of a process. `slots` and `nbytes` were made at start. `in_use` are leased now, `high_water`
    were at once at most. `leases`: how often a slot was asked for and there was one, `refused`: and there was none.
    `unused_share`: of the bytes that were leased, those that the rows did not fill (fragmentation)."""

    slots: int = 0
    nbytes: int = 0
    in_use: int = 0
    high_water: int = 0
    leases: int = 0
    refused: int = 0
    unused_share: float = 0.0

    @property
    def hit_rate(self) -> float:
        """The share of those who asked for a slot that got one; 1 where nobody asked."""
        asked = self.leases + self.refused
        return self.leases / asked if asked else 1.0


class _Pool:
    __slots__ = ("free", "generations", "held", "nbytes", "rows")

    def __init__(self, slots: int, rows: int, nbytes: int) -> None:
        self.free = list(range(slots - 1, -1, -1))
        self.generations = [0] * slots
        self.held = [False] * slots
        self.rows = rows
        self.nbytes = nbytes


class Arena:
    """All pools of a process, sized once."""

    def __init__(self, classes: Iterable[SlotClass]) -> None:
        self._pools = {PoolKey(c.contract, c.program, c.first): _Pool(c.slots, c.rows, c.nbytes) for c in classes}
        self._in_use = 0
        self._high_water = 0
        self._leases = 0
        self._refused = 0
        self._leased_bytes = 0
        self._used_bytes = 0

    def acquire(self, key: PoolKey, rows: int) -> Lease | None:
        """A free slot for so many rows, or None where all are in use, the pool does not exist, or its slots are smaller."""
        pool = self._pools.get(key)
        if pool is None or not pool.free or rows > pool.rows:
            self._refused += 1
            return None
        slot = pool.free.pop()
        pool.held[slot] = True
        self._in_use += 1
        self._high_water = max(self._high_water, self._in_use)
        self._leases += 1
        self._leased_bytes += pool.nbytes
        self._used_bytes += pool.nbytes * rows // pool.rows
        return Lease(key, slot, pool.generations[slot])

    def release(self, lease: Lease) -> None:
        """The slot is free again. Raises `InvariantBroken` where the lease is over."""
        pool, slot = self._pools.get(lease.pool), lease.slot
        if pool is None or not 0 <= slot < len(pool.held):
            raise InvariantBroken(f"lease {lease} is of no slot of this arena")
        generation = pool.generations[slot]
        if not pool.held[slot] or generation != lease.generation:
            raise InvariantBroken(f"lease {lease} is not held: its slot is at generation {generation}")
        pool.held[slot] = False
        pool.generations[slot] = generation + 1
        pool.free.append(slot)
        self._in_use -= 1

    def in_use(self) -> int:
        """Slots that are leased, over all pools."""
        return self._in_use

    def figures(self) -> ArenaFigures:
        """What became of the slots so far."""
        pools = self._pools.values()
        return ArenaFigures(
            slots=sum(len(pool.held) for pool in pools),
            nbytes=sum(len(pool.held) * pool.nbytes for pool in pools),
            in_use=self._in_use,
            high_water=self._high_water,
            leases=self._leases,
            refused=self._refused,
            unused_share=1 - self._used_bytes / self._leased_bytes if self._leased_bytes else 0.0,
        )

    def validate(self) -> None:
        """Raises `InvariantBroken` where the free lists, the leases and the figures disagree."""
        in_use = over = 0
        for key, pool in self._pools.items():
            held = {i for i, taken in enumerate(pool.held) if taken}
            in_use += len(held)
            over += sum(pool.generations)
            if (
                len(set(pool.free)) != len(pool.free)
                or held & set(pool.free)
                or len(held) + len(pool.free) != len(pool.held)
            ):
                raise InvariantBroken(f"pool {key}: free {sorted(pool.free)}, held {sorted(held)} of {len(pool.held)}")
        if in_use != self._in_use or in_use + over != self._leases:
            raise InvariantBroken(
                f"{in_use} slots are held and {over} were given back, of {self._leases} leases, {self._in_use} in use"
            )
        if not (in_use <= self._high_water <= self._leases and 0 <= self._used_bytes <= self._leased_bytes):
            raise InvariantBroken(f"the arena's figures disagree: {self.figures()}")
