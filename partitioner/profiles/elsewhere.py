"""A profile that another machine measures of a model of this one."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec

from partitioner.graph.external import save_with_weights
from partitioner.graph.load import read_model
from partitioner.profiles.measure import Asked, Progress
from partitioner.profiles.record import DeviceProfile
from partitioner.profiles.remote import Host
from shared.errors import UserError


def measure_on(host: Host, asked: Asked, progress: Progress) -> DeviceProfile:
    """What `asked` asks for, measured on another machine. Raises `UserError` and its kinds, as `Host.profile`."""
    progress(f"measuring on {host.name}", 0.0)
    read = read_model(asked.model)
    with tempfile.TemporaryDirectory() as folder:
        files = [asked.model]
        if read.weight_bytes > asked.model.stat().st_size:  # its weights lie in files of their own
            written = save_with_weights(read.proto, Path(folder))
            files = [written, *(file for file in Path(folder).iterdir() if file != written)]
        arguments = [f"./{files[0].name}", "--as", asked.side, "--provider", asked.provider]
        arguments += ["--threads", str(asked.threads), "--cadence", f"{asked.cadence_hz:g}"]
        arguments += ["--seconds", f"{asked.seconds:g}", "--preprocess", asked.preprocess]
        for text in (text for shapes in asked.shapes for text in shapes):
            arguments += ["--shape", text]
        if asked.batches is not None:
            arguments += ["--batch", ",".join(map(str, asked.batches))]
        post = Path(asked.postprocess)
        if post.is_file():
            if post.name in {file.name for file in files}:
                raise UserError(f"{post} and the model have one file name, and go into one folder there: rename one")
            files.append(post)
        arguments += ["--postprocess", f"./{post.name}" if post.is_file() else asked.postprocess]
        found = host.profile(files, arguments, asked.seconds)
    return msgspec.structs.replace(found, model=asked.model.name, postprocess=asked.postprocess)
