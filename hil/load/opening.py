"""Opens what is to be loaded: an agent that runs, a node that runs, or a node of the rig's own for a bundle."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from edge.door import choose_model, specs
from hil.load.agent_target import AgentTarget, Inputs, attach
from hil.load.node_target import NodeTarget
from hil.load.target import Target
from shared.bundle import Bundle, load_bundle
from shared.codecs import encode
from shared.endpoints import check_endpoint
from shared.errors import InputError, UserError
from shared.plan import MANIFEST, Coding, Plan
from shared.request import Array, Buffer, TensorSpec
from shared.settings import CloudLimits, CloudSettings, NodeGroup, NodeScheduling
from shared.wire.messages import ModelInfo

PATIENCE_S = 10.0
SAMPLES = 8
CREDITS = 2048
"""What a node of the rig's own lends: a load generator stands for many edges."""

WEIGHT = (sys.executable, "-m", "hil.weight")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says of the target."""

    target: str
    plan: Path | None = None
    model: str | None = None
    coding: str | None = None
    threads: int | None = None
    seed: int = 1


class Opened:
    """What is loaded, once it answers. `label` is the endpoint or the bundle, `model` and `contract` whose requests these
    are, `coding` how they are written."""

    def __init__(self, asked: Asked, stack: ExitStack) -> None:
        """Everything that is opened is closed with `stack`. Raises `UserError` for what cannot be asked, `HeadtailError`
        where it does not answer."""
        self.label = asked.target
        self._bundle: Bundle | None = None
        self._frames: Sequence[tuple[Buffer, ...]] = ()
        self._inputs: Sequence[Inputs] = ()
        runs = asked.target.startswith(("ipc://", "tcp://"))
        if runs and asked.threads is not None:
            raise UserError(
                f"--threads: {asked.target} runs already; name them for a bundle, for which a node is started"
            )
        if asked.target.startswith("ipc://"):
            self._open_agent(asked)
        elif asked.target.startswith("tcp://"):
            if asked.plan is None:
                raise UserError(f"{asked.target}: a node is asked for one plan's requests: name the bundle by --plan")
            check_endpoint(asked.target, binds=False)
            self._open_node(asked, asked.target, load_bundle(asked.plan))
        elif Path(asked.target).is_dir() and (Path(asked.target) / MANIFEST).exists():
            self._open_own(asked, stack)
        else:
            raise UserError(
                f"target {asked.target!r}: expected an agent (ipc://PATH), a node (tcp://HOST:PORT) or a bundle (NAME.plan)"
            )

    def target(self, priority: int) -> Target:
        """A connection for requests of this class. Raises `HeadtailError` where there is none."""
        if self._bundle is None:
            return AgentTarget(attach(self._endpoint, PATIENCE_S), self.model, self._inputs, priority)
        return NodeTarget(
            self._endpoint, self.contract, self._bundle.plan, self.coding, self._frames, priority, PATIENCE_S
        )

    def _open_agent(self, asked: Asked) -> None:
        if asked.coding is not None:
            raise UserError("--coding: an agent chooses how it asks its nodes; name one for a node only")
        bundle = None if asked.plan is None else load_bundle(asked.plan)
        with attach(asked.target, PATIENCE_S) as client:
            info = choose_model(client.models(), asked.model or (None if bundle is None else bundle.name))
        if bundle is not None and bundle.contract != info.contract:
            raise InputError(
                f"{asked.plan}: the agent's {info.name!r} is another version: contract {info.contract[:12]}"
            )
        self._endpoint = asked.target
        self.model, self.contract, self.coding = info.name, info.contract, ""
        self._inputs = made_inputs(info, asked.seed) if bundle is None else golden_inputs(bundle)

    def _open_own(self, asked: Asked, stack: ExitStack) -> None:
        if find_spec("onnxruntime") is None:
            raise UserError("a node of its own needs the extra 'cloud': pip install 'headtail[cloud]'")
        from hil.own_node import OwnNode

        if asked.plan is not None:
            raise UserError("--plan: the target is a bundle already; expected one or the other")
        bundle = load_bundle(asked.target)
        node = stack.enter_context(OwnNode(bundle.path, asked.threads or 1, own_settings(), WEIGHT))
        self._open_node(asked, node.endpoint(), bundle)

    def _open_node(self, asked: Asked, endpoint: str, bundle: Bundle) -> None:
        if asked.model not in (None, bundle.name):
            raise UserError(f"--model {asked.model!r}: the bundle is {bundle.name!r}")
        coding = coding_of(bundle.plan, asked.coding)
        self._endpoint, self._bundle = endpoint, bundle
        self.model, self.contract, self.coding = bundle.name, bundle.contract, coding.name
        self._frames = frames_of(bundle, coding)


def own_settings() -> CloudSettings:
    """Settings of a node that is loaded by one process in place of many edges."""
    return CloudSettings(
        node=NodeGroup(name="load", credits=CREDITS),
        scheduling=NodeScheduling(max_queued=2 * CREDITS),
        limits=CloudLimits(max_open=2 * CREDITS),
    )


def coding_of(plan: Plan, name: str | None) -> Coding:
    """The coding of the input: the one of this name, else that of the plan's best route from the input, else its first.
    Raises `UserError`."""
    cut = plan.cuts[0]
    if name is None:
        name = next((route.coding for route in plan.routes if route.cut == 0), cut.codings[0].name)
    coding = cut.coding(name)
    if coding is None:
        known = ", ".join(each.name for each in cut.codings)
        raise UserError(f"--coding {name!r}: the input of plan {plan.name!r} has no such coding; expected {known}")
    return coding


def frames_of(bundle: Bundle, coding: Coding) -> list[tuple[Buffer, ...]]:
    """The golden inputs, written in this coding, one row each."""
    return [
        tuple(bytes(encode(array, coding, number)) for number, array in enumerate(golden.inputs))
        for golden in bundle.golden()
    ]


def golden_inputs(bundle: Bundle) -> list[Inputs]:
    """The golden inputs by name."""
    names = [spec.name for spec in bundle.plan.inputs]
    return [dict(zip(names, golden.inputs, strict=True)) for golden in bundle.golden()]


def made_inputs(info: ModelInfo, seed: int) -> list[Inputs]:
    """Inputs of the right shapes, from the seed: noise for bytes and floats, zeros and ones for other whole numbers, which
    may be places in a table."""
    rng = np.random.default_rng(seed)
    return [{spec.name: _made(spec, rng) for spec in specs(info)} for _ in range(SAMPLES)]


def _made(spec: TensorSpec, rng: np.random.Generator) -> Array:
    dtype = np.dtype(spec.dtype)
    made: Array
    if dtype.kind == "f":
        made = rng.standard_normal(spec.shape)
    else:
        made = rng.integers(0, 256 if dtype == np.uint8 else 2, spec.shape)
    return np.ascontiguousarray(made.astype(dtype))
