"""The partitioner's verbs, as data: see `shared.commands`."""

from __future__ import annotations

from shared.commands import Command

COMMANDS = (
    Command(
        "inspect",
        "Show a model's inputs, outputs, candidate cuts and warnings.",
        "partitioner.inspect_cli:main",
        extra="plan",
        requires=("onnx", "onnxruntime"),
    ),
    Command(
        "plan",
        "Decide where a model should run, and write the bundle.",
        "partitioner.plan_cli:main",
        extra="plan",
        requires=("onnx", "onnxruntime", "PIL", "simplejpeg", "zstandard", "qoi"),
    ),
)
