"""The folder ``onnx`` of a bundle: names of its graphs, their metadata, and sessions that execute them.

    onnx/lm_embed.onnx                       inputs' embedding, the same in every precision
    onnx/lm_step.int4.onnx                   a graph in a precision, each with its weights in NAME.onnx.data
    onnx/lm_head.int4.onnx
    onnx/flow_speaker.onnx, flow_encoder.onnx, flow_step.onnx, vocoder.onnx
    onnx/campplus.onnx                       front-end models of the release, with metadata added
    onnx/speech_tokenizer_v2.onnx

The metadata of a graph has the digest of the bundle that it was exported from. A graph of other weights is
refused.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import onnxruntime
import torch
from onnxruntime.capi import onnxruntime_pybind11_state as onnx_errors
from torch import Tensor

from ..checkpoint.bundle import CosyVoiceBundle, InvalidBundleError
from ..checkpoint.tensor_shapes import WEIGHT_FILES
from ..checkpoint.weight_files import WeightFileError, map_weight_file, weight_path
from ..config import TIED_HEAD_KEY

GRAPH_FOLDER = "onnx"
DIGEST_KEY = "bundle_digest"
PRECISION_KEY = "precision"
OPSET_KEY = "opset"

_SAMPLED_NUMBERS = 256  # of each end of a tensor
_OnnxErrors = (
    onnx_errors.Fail,
    onnx_errors.InvalidArgument,
    onnx_errors.InvalidGraph,
    onnx_errors.InvalidProtobuf,
    onnx_errors.NoSuchFile,
    onnx_errors.NotImplemented,
    onnx_errors.RuntimeException,
)


def bundle_digest(bundle: CosyVoiceBundle) -> str:
    """32 hexadecimal digits that differ between bundles with different weights.

    SHA-256 over the key, shape and both ends of each tensor: the whole files take seconds to read. It is the
    same for .pt and .safetensors. Raises InvalidBundleError.
    """
    digest = hashlib.sha256()
    for name in WEIGHT_FILES:
        try:
            tensors = map_weight_file(weight_path(bundle.folder, name))
        except WeightFileError as error:
            raise InvalidBundleError(str(error)) from error
        for key in sorted(tensors.keys() - {TIED_HEAD_KEY}):  # which a converted file lacks
            _update(digest, f"{name} {key}", tensors[key])
    return digest.hexdigest()[:32]


def _update(digest: "hashlib._Hash", name: str, tensor: Tensor) -> None:
    digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
    numbers = tensor.flatten()
    for end in (numbers[:_SAMPLED_NUMBERS], numbers[-_SAMPLED_NUMBERS:]):
        digest.update(end.float().numpy().tobytes())


def graph_path(bundle: CosyVoiceBundle, graph: str, precision: str = "") -> Path:
    """Path of an exported graph, in a precision if the graph exists in several."""
    name = f"{graph}.{precision}.onnx" if precision else f"{graph}.onnx"
    return bundle.folder / GRAPH_FOLDER / name


def open_graph(path: Path, digest: str, threads: int) -> onnxruntime.InferenceSession:
    """Load a graph for execution on the CPU.

    Raises InvalidBundleError if it is missing, damaged, or of a bundle with another digest.
    """
    remedy = f"run vivavoce bundle export {path.parent.parent} --to onnx"
    if not path.exists():
        raise InvalidBundleError(f"{path}: missing; {remedy}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    # Threads that wait actively take the cores from the flow and the vocoder, which compute with torch.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except _OnnxErrors as error:
        raise InvalidBundleError(f"{path}: {str(error).splitlines()[0][:200]}; {remedy}") from error
    found = session.get_modelmeta().custom_metadata_map.get(DIGEST_KEY)
    if found != digest:
        raise InvalidBundleError(f"{path}: made from other weights ({found}, expected {digest}); {remedy}")
    return session


def run_graph(session: onnxruntime.InferenceSession, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Run a graph; its outputs by name. Inputs that are contiguous are not copied."""
    names = [output.name for output in session.get_outputs()]
    outputs = session.run(names, {name: tensor.numpy() for name, tensor in inputs.items()})
    return {name: torch.from_numpy(output) for name, output in zip(names, outputs, strict=True)}


def initial_state(session: onnxruntime.InferenceSession, rows: int) -> dict[str, Tensor]:
    """Zeros for every ``past_`` input of a graph: 0 long on dynamic axes other than the rows."""
    return {
        part.name: torch.zeros(
            [rows, *(size if isinstance(size, int) else 0 for size in part.shape[1:])],
            dtype=torch.float64 if part.type == "tensor(double)" else torch.float32,
        )
        for part in session.get_inputs()
        if part.name.startswith("past_")
    }
