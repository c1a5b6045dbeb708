"""The partitioner's verbs, as data: see `shared.commands`."""

from __future__ import annotations

from shared.commands import Command

COMMANDS = (
    Command(
        "inspect",
        "Show a model's inputs, outputs, candidate cuts and warnings; draw it.",
        "partitioner.inspections.cli:main",
        extra="plan",
        requires=("onnx", "onnxruntime", "PIL"),
    ),
    Command(
        "invert",
        "Say how well a small decoder rebuilds the input from what a plan's routes send.",
        "partitioner.inversions.cli:main",
        extra="plan",
        requires=("onnx", "onnxruntime", "PIL", "simplejpeg", "zstandard", "qoi"),
    ),
    Command(
        "plan",
        "Decide where a model should run, and write the bundle.",
        "partitioner.plan_cli:main",
        extra="plan",
        requires=("onnx", "onnxruntime", "PIL", "simplejpeg", "zstandard", "qoi"),
    ),
    Command(
        "profile",
        "Measure what a model costs on a machine, as a file; scale, estimate and compare such files.",
        "partitioner.profile_cli:main",
        extra="plan",
        requires=("onnx", "onnxruntime", "PIL", "simplejpeg", "zstandard", "qoi"),
    ),
    Command(
        "report",
        "Write the report of a plan again, as one page that needs nothing else.",
        "partitioner.reports.cli:main",
    ),
)
