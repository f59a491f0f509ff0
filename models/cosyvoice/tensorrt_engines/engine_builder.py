"""Builds engines from graphs, refits them to other weights, and keeps what the builder has timed.

``TensorrtModule`` is the package ``tensorrt`` 11; it is imported where a card is used, and tests pass a
stand-in.

Source: the Python API of NVIDIA TensorRT 11.4 (Builder, OnnxParser, OnnxParserRefitter, ITimingCache).
"""

import contextlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ...devices.execution import DeviceError
from .shape_profiles import ShapeProfile, SizeRange

if TYPE_CHECKING:
    import tensorrt

logger = logging.getLogger(__name__)

TensorrtModule = ModuleType
_WORKSPACE_BYTES = 4 * 2**30  # at most, for the builder's choices


class EngineBuildError(DeviceError):
    """TensorRT refused a graph; the message has its first error."""


def import_tensorrt() -> TensorrtModule:
    """The package. Raises DeviceError without it."""
    try:
        import tensorrt
    except ImportError as error:
        raise DeviceError(
            f"the executor tensorrt needs NVIDIA's package ({error}): pip install tensorrt"
        ) from error
    return tensorrt


class EngineBuilder:
    """Builds and refits engines with one timing cache, in a file. Not thread-safe."""

    def __init__(self, module: TensorrtModule, timing_file: Path) -> None:
        self._trt: ModuleType = module
        self._timing_file = timing_file
        self._logger = module.Logger(module.Logger.ERROR)

    def build(
        self, graph: Path, profiles: Sequence[ShapeProfile], axes: Mapping[str, Sequence[int | str]]
    ) -> bytes:
        """The engine of a graph, which can be refitted. axes: names of the dynamic ones, by input.

        Raises EngineBuildError.
        """
        builder = self._trt.Builder(self._logger)
        network = builder.create_network()
        parser = self._trt.OnnxParser(network, self._logger)
        if not parser.parse_from_file(str(graph)):
            raise EngineBuildError(f"{graph.name}: {_first_error(parser)}")
        config = builder.create_builder_config()
        config.set_flag(self._trt.BuilderFlag.REFIT)
        config.set_memory_pool_limit(self._trt.MemoryPoolType.WORKSPACE, _WORKSPACE_BYTES)
        config.set_timing_cache(config.create_timing_cache(self._read_timings()), False)
        for sizes in profiles:
            profile = builder.create_optimization_profile()
            for index in range(network.num_inputs):
                _set_range(profile, network.get_input(index), axes, sizes)
            config.add_optimization_profile(profile)
        engine = builder.build_serialized_network(network, config)
        if engine is None:
            raise EngineBuildError(f"{graph.name}: the builder gave no engine; its log says why")
        self._write_timings(config.get_timing_cache())
        return bytes(engine)

    def load(self, engine: bytes) -> "tensorrt.ICudaEngine":
        """An engine ready to run. Raises EngineBuildError if TensorRT refuses it."""
        loaded: tensorrt.ICudaEngine | None = self._trt.Runtime(self._logger).deserialize_cuda_engine(engine)
        if loaded is None:
            raise EngineBuildError("TensorRT cannot read the engine")
        return loaded

    def refit(self, engine: bytes, graph: Path) -> bytes:
        """The engine with the weights of a graph of the same structure. Raises EngineBuildError."""
        loaded = self.load(engine)
        refitter = self._trt.Refitter(loaded, self._logger)
        parser = self._trt.OnnxParserRefitter(refitter, self._logger)
        if not parser.refit_from_file(str(graph)):
            raise EngineBuildError(f"{graph.name}: {_first_error(parser)}")
        if missing := refitter.get_missing_weights():
            raise EngineBuildError(f"{graph.name}: {len(missing)} weights are missing, {missing[0]} first")
        if not refitter.refit_cuda_engine():
            raise EngineBuildError(f"{graph.name}: the weights were refused")
        return bytes(loaded.serialize())

    def _read_timings(self) -> bytes:
        try:
            return self._timing_file.read_bytes()
        except OSError:
            return b""

    def _write_timings(self, cache: "tensorrt.ITimingCache") -> None:
        with contextlib.suppress(OSError):  # the next build measures again
            self._timing_file.write_bytes(bytes(cache.serialize()))


def _set_range(
    profile: "tensorrt.IOptimizationProfile",
    tensor: "tensorrt.ITensor",
    axes: Mapping[str, Sequence[int | str]],
    sizes: ShapeProfile,
) -> None:
    shape = axes[tensor.name]
    if tensor.is_shape_tensor:
        values = sizes[tensor.name]
        profile.set_shape_input(tensor.name, [values.min], [values.usual], [values.max])
    elif any(isinstance(size, str) for size in shape):
        ranges = [SizeRange(size, size, size) if isinstance(size, int) else sizes[size] for size in shape]
        profile.set_shape(
            tensor.name,
            [each.min for each in ranges],
            [each.usual for each in ranges],
            [each.max for each in ranges],
        )


def _first_error(parser: "tensorrt.OnnxParser | tensorrt.OnnxParserRefitter") -> str:
    return str(parser.get_error(0).desc()) if parser.num_errors else "TensorRT refused the graph"
