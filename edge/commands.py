"""The edge's verbs of the command `headtail`."""

from __future__ import annotations

from shared.commands import Command

COMMANDS = (
    Command(
        "edge",
        "Run the edge agent: answers for the applications of this host.",
        "edge.agent:main",
        extra="edge",
        requires=("zmq", "onnxruntime", "simplejpeg", "zstandard"),
    ),
)
