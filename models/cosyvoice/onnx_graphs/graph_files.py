"""The folder ``onnx`` of a bundle: names of its graphs, their metadata, and sessions that execute them.

    onnx/lm_embed.onnx                       inputs' embedding, the same in every precision
    onnx/lm_step.int4.onnx                   a graph in a precision, each with its weights in NAME.onnx.data
    onnx/lm_head.int4.onnx
    onnx/flow_speaker.onnx, flow_encoder.onnx, flow_step.onnx, vocoder.onnx
    onnx/flow_encoder.int8.onnx, flow_step.int8.onnx
    onnx/campplus.onnx                       front-end models of the release, with metadata added
    onnx/speech_tokenizer_v2.onnx

The metadata of a graph has the digest of the bundle that it was exported from, and the number of its format.
A graph of other weights or of another format is refused.
"""

import json
from pathlib import Path

import onnxruntime

from ...bundle_files import WeightFileError
from ...devices.execution import Precision, is_torch_installed
from ...devices.host_memory import release_file_pages
from ...devices.onnx_sessions import CPU_SESSIONS, ONNX_RUNTIME_ERRORS, OnnxSessions
from ...onnx_graphs.exact_products import exact_integer_options
from ..checkpoint.bundle import CosyVoiceBundle, InvalidBundleError
from ..config import TIED_HEAD_KEY

GRAPH_FOLDER = "onnx"
DIGEST_KEY = "bundle_digest"
PRECISION_KEY = "precision"
OPSET_KEY = "opset"
FORMAT_KEY = "format"
# Of inputs and outputs, by the name of a graph with its precision. Others have 1, as graphs without a number.
GRAPH_FORMATS = {"flow_step.int8": "2"}

DIGEST_FILE = "bundle.json"
MAX_POSITIONS = 8192  # of a row of the language model


def bundle_digest(bundle: CosyVoiceBundle) -> str:
    """32 hexadecimal digits that differ between bundles with different weights.

    Without torch they are those of the export, with which the graphs are compared. Raises InvalidBundleError.
    """
    if is_torch_installed():
        from ...checkpoint.tensor_digest import weight_digest
        from ..checkpoint.tensor_shapes import WEIGHT_FILES

        try:
            return weight_digest(bundle.folder, WEIGHT_FILES, {TIED_HEAD_KEY})
        except WeightFileError as error:
            raise InvalidBundleError(str(error)) from error
    path = bundle.folder / GRAPH_FOLDER / DIGEST_FILE
    try:
        return str(json.loads(path.read_text())[DIGEST_KEY])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidBundleError(
            f"{path}: missing or damaged, and torch is not installed to read the weights; "
            f"run vivavoce bundle export {bundle.folder} --to onnx where torch is installed"
        ) from error


def write_digest(bundle: CosyVoiceBundle, digest: str) -> None:
    """Keep the digest beside the graphs, for ``bundle_digest`` without torch."""
    (bundle.folder / GRAPH_FOLDER / DIGEST_FILE).write_text(json.dumps({DIGEST_KEY: digest}))


def graph_path(bundle: CosyVoiceBundle, graph: str, precision: str = "") -> Path:
    """Path of an exported graph, in a precision if the graph exists in several."""
    name = f"{graph}.{precision}.onnx" if precision else f"{graph}.onnx"
    return bundle.folder / GRAPH_FOLDER / name


def flow_graph_path(bundle: CosyVoiceBundle, graph: str, precision: Precision) -> Path:
    """Path of a graph of the flow; those in float32 do not name it."""
    return graph_path(bundle, graph, "" if precision is Precision.FP32 else precision)


def is_exported(bundle: CosyVoiceBundle, precision: Precision) -> bool:
    """Whether language model and flow are exported in a precision."""
    lm = graph_path(bundle, "lm_step", precision.of_lm)
    return lm.exists() and flow_graph_path(bundle, "flow_step", precision.of_exported_flow).exists()


def graph_format(path: Path) -> str:
    """The format that a graph must have."""
    return GRAPH_FORMATS.get(path.name.removesuffix(".onnx"), "1")


def open_graph(
    path: Path, digest: str, threads: int, sessions: OnnxSessions = CPU_SESSIONS
) -> onnxruntime.InferenceSession:
    """Load a graph for execution.

    Raises InvalidBundleError if it is missing, damaged, of another format or of a bundle with another digest.
    """
    remedy = f"run {_export_command(path)}"
    if not path.exists():
        raise InvalidBundleError(f"{path}: missing; {remedy}")
    options = exact_integer_options(threads)
    # An arena keeps the largest chunk's intermediate results, 0.3 GB of the flow, and is no faster.
    options.enable_cpu_mem_arena = False
    try:
        session = sessions.open(path, options)
    except ONNX_RUNTIME_ERRORS as error:
        raise InvalidBundleError(f"{path}: {str(error).splitlines()[0][:200]}; {remedy}") from error
    # Packing has copied the matrices.
    release_file_pages(path.with_name(f"{path.name}.data"))
    metadata = session.get_modelmeta().custom_metadata_map
    found, version = metadata.get(DIGEST_KEY), metadata.get(FORMAT_KEY, "1")
    if found != digest:
        raise InvalidBundleError(f"{path}: made from other weights ({found}, expected {digest}); {remedy}")
    if version != graph_format(path):
        raise InvalidBundleError(
            f"{path}: exported in the format {version}, expected {graph_format(path)}; {remedy}"
        )
    return session


def _export_command(path: Path) -> str:
    """The command that writes a graph."""
    graph, _, precision = path.name.removesuffix(".onnx").partition(".")
    if graph.startswith("flow") and precision:
        precision = Precision.INT4_INT8
    option = f" --precision {precision}" if precision else ""
    return f"vivavoce bundle export {path.parent.parent} --to onnx{option}"
