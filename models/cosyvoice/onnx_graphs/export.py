"""Exports a bundle to ONNX: a folder ``onnx`` in it that a runtime in any language can execute.

Source: the state contract in models/cosyvoice/README.md.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx
from onnx import helper

from ...devices.execution import Precision
from ...onnx_graphs.graph_builder import OPSET
from ...onnx_graphs.matrix_products import MatrixFormat
from ..checkpoint.bundle import CosyVoiceBundle
from ..checkpoint.speakers import EXPORTED_SPEAKERS, write_exported_speakers
from ..config import CosyVoiceVersion
from .flow_encoder_graphs import write_flow_encoder, write_flow_speaker
from .flow_step_graphs import write_flow_step
from .graph_files import (
    DIGEST_KEY,
    FORMAT_KEY,
    GRAPH_FOLDER,
    OPSET_KEY,
    PRECISION_KEY,
    bundle_digest,
    flow_graph_path,
    graph_format,
    graph_path,
    write_digest,
)
from .hift_v2_graph import write_hift_v2
from .hift_v3_graph import write_hift_v3
from .lm_graphs import write_lm_embedding, write_lm_head, write_lm_step

# Blocks of 32 inputs lose less than larger ones.
MATRIX_FORMATS: Mapping[Precision, MatrixFormat] = {
    Precision.FP32: MatrixFormat(32),
    Precision.INT8: MatrixFormat(8, 32),
    Precision.INT4: MatrixFormat(4, 32),
    Precision.INT4_INT8: MatrixFormat(4, 32),
}


def export_bundle(bundle: CosyVoiceBundle, precision: Precision) -> Iterator[Path]:
    """Write the graphs of a bundle in a precision; yields each when it is in place.

    A graph is written beside its place and moved there complete, so a server that loads it meanwhile finds
    the old or the new one. Raises InvalidBundleError, OSError.
    """
    digest = bundle_digest(bundle)
    (bundle.folder / GRAPH_FOLDER).mkdir(exist_ok=True)
    yield from _export_lm(bundle, precision.of_lm, digest)
    yield from _export_flow(bundle, precision.of_exported_flow, digest)
    yield _export_vocoder(bundle, digest)
    for model in (bundle.speaker_encoder, bundle.speech_tokenizer):
        path = graph_path(bundle, model.stem)
        _copy_with_metadata(model, _begin(path), _metadata(path, digest))
        yield _finish(path)
    write_exported_speakers(bundle.folder / EXPORTED_SPEAKERS, bundle.speakers())
    write_digest(bundle, digest)


def export_rendering(bundle: CosyVoiceBundle) -> Iterator[Path]:
    """Write the graphs of flow and vocoder only. Raises InvalidBundleError, OSError."""
    (bundle.folder / GRAPH_FOLDER).mkdir(exist_ok=True)
    digest = bundle_digest(bundle)
    yield from _export_flow(bundle, Precision.FP32, digest)
    yield _export_vocoder(bundle, digest)


def _export_lm(bundle: CosyVoiceBundle, precision: Precision, digest: str) -> Iterator[Path]:
    config, matrices = bundle.network_config.lm, MATRIX_FORMATS[precision]
    weights = bundle.load("llm.pt")
    path = graph_path(bundle, "lm_embed")
    write_lm_embedding(_begin(path), config, weights, _metadata(path, digest))
    yield _finish(path)
    path = graph_path(bundle, "lm_step", precision)
    write_lm_step(_begin(path), config, weights, matrices, _metadata(path, digest, precision))
    yield _finish(path)
    path = graph_path(bundle, "lm_head", precision)
    write_lm_head(_begin(path), config, weights, matrices, _metadata(path, digest, precision))
    yield _finish(path)


def _export_flow(bundle: CosyVoiceBundle, precision: Precision, digest: str) -> Iterator[Path]:
    config, weights = bundle.network_config.flow, bundle.load("flow.pt")
    path = graph_path(bundle, "flow_speaker")
    write_flow_speaker(_begin(path), config, weights, _metadata(path, digest))
    yield _finish(path)
    for name, write in (("flow_encoder", write_flow_encoder), ("flow_step", write_flow_step)):
        path = flow_graph_path(bundle, name, precision)
        write(_begin(path), config, weights, _metadata(path, digest, precision), precision)
        yield _finish(path)


def _export_vocoder(bundle: CosyVoiceBundle, digest: str) -> Path:
    write = write_hift_v2 if bundle.version is CosyVoiceVersion.V2 else write_hift_v3
    path = graph_path(bundle, "vocoder")
    write(_begin(path), bundle.network_config.hift, bundle.load("hift.pt"), _metadata(path, digest))
    return _finish(path)


def _metadata(path: Path, digest: str, precision: Precision = Precision.FP32) -> dict[str, str]:
    return {
        DIGEST_KEY: digest,
        FORMAT_KEY: graph_format(path),
        OPSET_KEY: str(OPSET),
        PRECISION_KEY: precision.value,
    }


def _begin(path: Path) -> Path:
    """The path, of the same file name, to write a graph to."""
    folder = path.parent / "incomplete"
    folder.mkdir(exist_ok=True)
    return folder / path.name


def _finish(path: Path) -> Path:
    incomplete = path.parent / "incomplete"
    for name in (f"{path.name}.data", path.name):
        if (incomplete / name).exists():
            os.replace(incomplete / name, path.parent / name)
    shutil.rmtree(incomplete)
    return path


def _copy_with_metadata(source: Path, target: Path, metadata: Mapping[str, str]) -> None:
    model = onnx.load(source)
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    helper.set_model_props(model, {**metadata, OPSET_KEY: str(opset)})
    onnx.save_model(model, target)
