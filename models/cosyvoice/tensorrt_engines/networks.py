"""Loads flow and vocoder of a bundle as engines, building, refitting or reading each.

**Unproven**: no card has run it; tests run it on a stand-in of TensorRT. It is an executor of the exported
graphs like ONNX Runtime: ``ArrayFlow`` and ``ArrayVocoder`` run its engines, whose states stay on the card.

onnx/flow_step.onnx                     the exported graph
onnx/tensorrt/flow_step.bf16.onnx       the same, typed for TensorRT
onnx/tensorrt/flow_step.bf16.engine     the engine of this card
onnx/tensorrt/timings                   what the builder has measured
"""

import logging
from functools import partial
from pathlib import Path

import onnx
import torch

from ...devices.execution import DeviceError, Precision
from ...devices.torch_devices import card_name, free_bytes
from ..checkpoint.bundle import CosyVoiceBundle
from ..onnx_graphs.graph_files import DIGEST_KEY, GRAPH_FOLDER, bundle_digest, graph_path, open_graph
from ..onnx_runtime.flow import ArrayFlow
from ..onnx_runtime.networks import ArrayRenderNetworks
from ..onnx_runtime.vocoder import ArrayVocoder
from .engine_builder import EngineBuilder, EngineBuildError, TensorrtModule, import_tensorrt
from .engine_files import EngineFileError, EngineIdentity, read_engine, write_engine
from .engine_graph import Axes, EngineGraph
from .shape_profiles import shape_profiles
from .typed_graph import structure_digest, write_typed_graph

logger = logging.getLogger(__name__)

FLOW_GRAPHS = ("flow_speaker", "flow_encoder", "flow_step")


class EngineLoader:
    """Engines of one bundle on one card. precision: of products in the flow; the vocoder keeps float32."""

    def __init__(
        self, module: TensorrtModule, bundle: CosyVoiceBundle, precision: Precision, device: torch.device
    ) -> None:
        self._bundle, self._precision, self._device = bundle, precision, device
        self._digest = bundle_digest(bundle)
        self._folder = bundle.folder / GRAPH_FOLDER / "tensorrt"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._version = str(module.__version__)
        self._builder = EngineBuilder(module, self._folder / "timings")

    def load(self) -> ArrayRenderNetworks:
        """Flow and vocoder. Raises InvalidBundleError, DeviceError."""
        flow, vocoder = self.load_flow(), self.load_vocoder()
        return ArrayRenderNetworks(flow, vocoder, partial(free_bytes, self._device))

    def load_flow(self) -> ArrayFlow:
        """The flow. Raises InvalidBundleError, DeviceError."""
        speaker, encoder, step = (self._load(name, self._precision) for name in FLOW_GRAPHS)
        return ArrayFlow(self._bundle.network_config.flow, speaker, encoder, step)

    def load_vocoder(self) -> ArrayVocoder:
        """The vocoder. Raises InvalidBundleError, DeviceError."""
        config, version = self._bundle.network_config.hift, self._bundle.version
        return ArrayVocoder(config, version, self._load("vocoder", Precision.FP32))

    def engine_files(self) -> list[Path]:
        """The engines on file, of any precision."""
        return sorted(self._folder.glob("*.engine"))

    def _load(self, name: str, precision: Precision) -> EngineGraph:
        exported = graph_path(self._bundle, name)
        typed, path = (self._folder / f"{name}.{precision}.{kind}" for kind in ("onnx", "engine"))
        if not typed.exists() or graph_digest(typed) != self._digest:
            open_graph(exported, self._digest, 1)  # refuses a graph of other weights
            write_typed_graph(exported, typed, precision)
        engine = self._builder.load(self._current_engine(name, typed, path))
        return EngineGraph(engine, shape_profiles(name), input_axes(typed), self._device)

    def _current_engine(self, name: str, typed: Path, path: Path) -> bytes:
        """The engine on file; refitted if its weights are others, built if there is none to use."""
        card = card_name(self._device) or self._device.type
        identity = EngineIdentity(structure_digest(typed), self._digest, card, self._version)
        try:
            engine, has_these_weights = read_engine(path, identity)
            if has_these_weights:
                return engine
            logger.info("%s: refitted to other weights", path)
            engine = self._builder.refit(engine, typed)
        except (EngineFileError, EngineBuildError) as reason:
            logger.info("%s: %s; it is built, which takes minutes", path, reason)
            engine = self._builder.build(typed, shape_profiles(name), input_axes(typed))
        write_engine(path, engine, identity)
        return engine


def load_engines(bundle: CosyVoiceBundle, precision: Precision, device: torch.device) -> ArrayRenderNetworks:
    """Flow and vocoder as engines of a card. Raises InvalidBundleError, and DeviceError for a processor."""
    if device.type != "cuda":
        raise DeviceError(f"the executor tensorrt is for a graphics card, and the device is {device}")
    is_narrow = precision in (Precision.BF16, Precision.FP16)
    products = precision if is_narrow else precision.of_card_flow
    return EngineLoader(import_tensorrt(), bundle, products, device).load()


def graph_digest(graph: Path) -> str:
    """Digest of the bundle that a graph was exported from; empty if the graph does not say."""
    model = onnx.load(graph, load_external_data=False)
    return next((str(entry.value) for entry in model.metadata_props if entry.key == DIGEST_KEY), "")


def input_axes(graph: Path) -> Axes:
    """Sizes of the axes of each input, or their names."""
    model = onnx.load(graph, load_external_data=False)
    return {
        part.name: [axis.dim_param or axis.dim_value for axis in part.type.tensor_type.shape.dim]
        for part in model.graph.input
    }
