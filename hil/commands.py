"""The rigs' verbs of the command `headtail`."""

from __future__ import annotations

from shared.commands import Command

COMMANDS = (
    Command(
        "demo",
        "Answer a camera by its deadline while the network degrades and nodes are killed.",
        "hil.demo:main",
        extra="demo",
        requires=("zmq", "onnxruntime", "onnx", "simplejpeg", "zstandard", "qoi", "PIL", "skimage"),
    ),
    Command(
        "chaos",
        "Kill and stop agent and nodes under load; hold every outcome against the books.",
        "hil.chaos:main",
        extra="dev",
        requires=("zmq", "onnxruntime", "onnx", "simplejpeg"),
    ),
    Command(
        "explain",
        "Say which way of a plan wins and what would change it, or what a running agent's requests weighed.",
        "hil.explain_cli:main",
    ),
    Command(
        "replay",
        "Run a saved journal again, and show what happened to each request.",
        "hil.replay:main",
    ),
    Command(
        "deadletters",
        "List the requests of an agent or node that came to nothing, with the reason, and ask them again.",
        "hil.deadletters:main",
    ),
    Command(
        "sim",
        "Run simulated clients, agents and nodes on one virtual clock, with every step checked.",
        "hil.sim.check_cli:group",
    ),
    Command(
        "hil",
        "Hardware in the loop: real processes and faults over an emulated network; traces of links, fitted and made.",
        "hil.hil_cli:group",
    ),
    Command(
        "verify",
        "Prove a plan on a cloud node of its own, or on one that is there.",
        "hil.verify:main",
        extra="cloud,plan",
        requires=("zmq", "onnxruntime", "onnx", "PIL", "simplejpeg", "zstandard"),
    ),
    Command(
        "tune",
        "Measure the deployed pair, compare it with the plan, and plan again by what drifted.",
        "hil.tune:main",
        extra="edge",
        requires=("zmq",),
    ),
    Command(
        "cut-everywhere",
        "Cut real models at every place and hold head and tail against the whole.",
        "hil.cut_everywhere_cli:main",
        extra="demo",
        requires=("onnxruntime", "onnx", "PIL", "skimage"),
    ),
    Command(
        "when-to-split",
        "Write the page that says when a cut pays, from what was measured of six models, or measure them first.",
        "hil.splits.cli:main",
        extra="demo",
        requires=("onnxruntime", "onnx", "PIL", "skimage", "simplejpeg", "zstandard", "qoi"),
    ),
    Command(
        "overhead",
        "Measure what a request costs on this machine beside its work and the link, as a file for plan.",
        "hil.overhead_cli:main",
        extra="edge,cloud,plan",
        requires=("zmq", "onnxruntime", "onnx"),
    ),
    Command(
        "bench",
        "Measure headtail's own parts on this machine, load an agent or a node, compare two loads.",
        "hil.bench_cli:group",
        extra="edge",
        requires=("zmq",),
    ),
)
