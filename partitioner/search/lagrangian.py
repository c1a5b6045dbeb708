"""Limits on sums, relaxed: the best mixture of cuts that keeps the limits on average, which bounds every cut that keeps them.

With multipliers on the limits the problem is a minimum cut again, and each such cut's price, less what the multipliers
forgive, is a lower bound (Geoffrion, "Lagrangean relaxation for integer programming", 1974). The best multipliers are found
by column generation: a small linear program mixes the cuts known so far, its dual prices are the next multipliers, and the
cut that is least at these joins them, until it is no better than the mixture. A first phase with the violation as
the objective finds a mixture that keeps the limits, or proves that none does. Bounds are computed from cuts, never
from what the linear program says of itself.
"""

# scipy has no type information
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import linprog

from partitioner.search.conditions import Limits
from partitioner.search.flow import Bools, Ints
from partitioner.search.mincut import least_cut
from partitioner.search.network import Floats, Network, Prices

SLACK = 1e-9
"""Of limits, which are scaled to about one, and of a mixture's price, relative: the accuracy asked of the linear program."""
VIOLATED = 1e-7
"""A violation, of a limit scaled to about one, that is more than rounding."""
MOST_ROUNDS = 60


@dataclass(frozen=True, slots=True)
class Form:
    """One limit as a sum: of `device` (floats, groups) over the cut's groups and `choices` (floats, values x choices) over
    what crosses, at most `most`. Scaled to about one."""

    name: str
    device: Floats
    choices: Floats
    most: float


@dataclass(frozen=True, slots=True)
class Column:
    """One cut with its codings (bools, groups; ints, values, meant where `crosses`, bools, values), its price, and by how
    much it exceeds each limit (floats, limits)."""

    inside: Bools
    codings: Ints
    crosses: Bools
    price: float
    excess: Floats


@dataclass(frozen=True, slots=True)
class Relaxed:
    """The proven bound on the price of every cut that keeps the limits, infinite where none does, and the best mixture:
    columns, and the share of each."""

    bound: float
    columns: tuple[Column, ...]
    shares: Floats


@dataclass(slots=True)
class Relaxation:
    """One problem's prices and limits, and the number of minimum cuts that were asked. `seen` are all columns ever made."""

    network: Network
    forms: Sequence[Form]
    solves: int = 0
    seen: list[Column] = field(default_factory=list[Column])

    def solve(self, prices: Prices, columns: Sequence[Column], most_solves: int) -> Relaxed:
        """The relaxation at these prices, begun with columns that are known to obey their pins. Where `most_solves` are used
        up, what is returned still holds, but a better bound may exist."""
        known = list(columns)
        if not known:
            first = self._cut(prices, np.zeros(len(self.forms)), pure=False)
            if first is None:
                return Relaxed(math.inf, (), np.zeros(0))
            known.append(first[0])
        if not self._make_possible(prices, known, most_solves):
            return Relaxed(math.inf, (), np.zeros(0))
        bound, shares = -math.inf, np.zeros(len(known))
        for _ in range(MOST_ROUNDS):
            mixed, shares, multipliers = _mix(known)
            found = self._cut(prices, multipliers, pure=False) if self.solves < most_solves else None
            if found is None:
                break
            bound = max(bound, found[1])
            if found[1] >= mixed - SLACK * abs(mixed) or _is_known(found[0], known):
                break
            known.append(found[0])
            shares = np.append(shares, 0.0)
        return Relaxed(bound, tuple(known), shares)

    def _make_possible(self, prices: Prices, known: list[Column], most_solves: int) -> bool:
        """Add columns until some mixture keeps all limits; False where none does."""
        for _ in range(MOST_ROUNDS):
            violation, multipliers = _violation(known)
            if violation <= SLACK or self.solves >= most_solves:
                return True
            found = self._cut(prices, multipliers, pure=True)
            if found is None or found[1] > VIOLATED:
                return False
            if _is_known(found[0], known):
                return violation <= VIOLATED
            known.append(found[0])
        return True

    def _cut(self, prices: Prices, multipliers: Floats, *, pure: bool) -> tuple[Column, float] | None:
        """The least cut with these multipliers and the bound that it proves: on the price, or, where `pure`, on the violation
        weighed by the multipliers alone."""
        self.solves += 1
        priced = replace(
            prices,
            device=prices.device * (not pure),
            cloud=prices.cloud * (not pure),
            choices=np.where(np.isinf(prices.choices), np.inf, 0.0) if pure else prices.choices,
        )
        for multiplier, form in zip(multipliers, self.forms, strict=True):
            priced = replace(
                priced,
                device=priced.device + multiplier * form.device,
                choices=priced.choices + multiplier * form.choices,
            )
        found = least_cut(self.network, priced)
        if found is None:
            return None
        forgiven = sum(float(m) * form.most for m, form in zip(multipliers, self.forms, strict=True))
        column = self._column(prices, found.inside, priced.choices)
        self.seen.append(column)
        return column, found.price - found.error - forgiven

    def _column(self, prices: Prices, inside: Bools, choices: Floats) -> Column:
        crosses = self.network.crosses(inside)
        codings = np.argmin(choices, axis=1) if choices.shape[1] else np.zeros(len(choices), dtype=np.int64)
        sent = np.flatnonzero(crosses), codings[crosses]
        price = prices.device[inside].sum() + prices.cloud[~inside].sum() + prices.choices[sent].sum()
        excess = [form.device[inside].sum() + form.choices[sent].sum() - form.most for form in self.forms]
        return Column(inside, codings, crosses, float(price), np.array(excess))


def forms_of(network: Network, limits: Limits) -> list[Form]:
    """The limits that are set, as sums. One beyond the sum of all that it counts is taken for that sum, which keeps what the
    linear program is given near one."""
    nothing, free = np.zeros(len(network.device_us)), np.zeros_like(network.nbytes)
    forms: list[Form] = []
    work = float(network.work.sum())
    if limits.least_share is not None and work:
        forms.append(Form("share", -network.work / work, free, -limits.least_share))
    if limits.memory_bytes is not None:
        size = float(network.weight_bytes.sum()) or 1.0
        forms.append(Form("memory", network.weight_bytes / size, free, min(limits.memory_bytes / size, 1.0)))
    if limits.bytes_up is not None:
        size = float(np.max(network.nbytes, initial=0.0)) or 1.0
        most = float(np.max(network.nbytes, axis=1, initial=0.0).sum()) / size
        forms.append(Form("bytes", nothing, network.nbytes / size, min(limits.bytes_up / size, most)))
    return forms


def _mix(columns: Sequence[Column]) -> tuple[float, Floats, Floats]:
    """The cheapest mixture that keeps the limits: its price, the columns' shares, and the limits' multipliers."""
    size = max(abs(column.price) for column in columns) or 1.0
    excess = np.array([column.excess for column in columns]).T
    result = linprog(
        [column.price / size for column in columns],
        A_ub=excess,
        b_ub=np.full(len(excess), SLACK),
        A_eq=np.ones((1, len(columns))),
        b_eq=[1.0],
        method="highs",
    )
    if result.x is None:  # the first phase was cut short
        return math.inf, np.zeros(len(columns)), np.zeros(len(excess))
    return float(result.fun) * size, np.asarray(result.x), -np.asarray(result.ineqlin.marginals) * size


def _violation(columns: Sequence[Column]) -> tuple[float, Floats]:
    """The least sum of violations of any mixture, and the multipliers (0 to 1) that show it."""
    excess = np.array([column.excess for column in columns]).T
    limits = len(excess)
    result = linprog(
        [*np.zeros(len(columns)), *np.ones(limits)],
        A_ub=np.hstack([excess, -np.eye(limits)]),
        b_ub=np.zeros(limits),
        A_eq=[[*np.ones(len(columns)), *np.zeros(limits)]],
        b_eq=[1.0],
        method="highs",
    )
    return float(result.fun), np.clip(-np.asarray(result.ineqlin.marginals), 0.0, 1.0)


def _is_known(column: Column, known: Sequence[Column]) -> bool:
    """Whether the linear program has it already, so that asking again would tell nothing new."""
    return any(
        np.array_equal(column.inside, other.inside)
        and np.array_equal(column.codings[column.crosses], other.codings[other.crosses])
        for other in known
    )
