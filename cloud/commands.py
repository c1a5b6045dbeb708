"""The cloud's verbs of the command `headtail`."""

from __future__ import annotations

from shared.commands import Command

COMMANDS = (
    Command(
        "cloud",
        "Run a cloud node: the tails of models, for edges.",
        "cloud.node:main",
        extra="cloud",
        requires=("zmq", "onnxruntime", "simplejpeg", "zstandard"),
    ),
)
