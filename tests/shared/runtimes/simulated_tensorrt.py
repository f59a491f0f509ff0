"""A stand-in of the package ``tensorrt`` 11: engines that ONNX Runtime executes on the CPU.

It has the names and signatures of ``tests/type_stubs/tensorrt`` and rules that a caller can break, such as
sizes outside the profiles. It says nothing about speed, and nothing about what TensorRT makes of a graph.
"""

import ctypes
import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

SHAPE_INPUTS = ("length", "block", "withheld", "last")  # numbers on which the shapes of a graph depend


class SimulatedTensorrt(ModuleType):
    """The module. log: calls that a test asks about. fails: whether builds fail."""

    def __init__(self, version: str = "11.4.0.106") -> None:
        super().__init__("tensorrt")
        self.__version__ = version
        self.log: list[str] = []
        self.fails = False
        for part in (Builder, OnnxParser, Runtime, Refitter, OnnxParserRefitter):
            setattr(self, part.__name__, lambda *given, part=part: part(self, *given))
        self.Logger = type("Logger", (), {"ERROR": 1, "__init__": lambda self, severity: None})
        self.BuilderFlag = type("BuilderFlag", (), {"REFIT": "REFIT"})
        self.MemoryPoolType = type("MemoryPoolType", (), {"WORKSPACE": "WORKSPACE"})


class Network:
    graph = ""
    inputs: Sequence[Any] = ()

    @property
    def num_inputs(self) -> int:
        return len(self.inputs)

    def get_input(self, index: int) -> Any:
        name = self.inputs[index].name
        return type("Tensor", (), {"name": name, "is_shape_tensor": name in SHAPE_INPUTS})


class Profile:
    def __init__(self) -> None:
        self.ranges: dict[str, tuple[Sequence[int], Sequence[int]]] = {}

    def set_shape(self, input: str, min: Sequence[int], opt: Sequence[int], max: Sequence[int]) -> None:
        assert all(a <= b <= c for a, b, c in zip(min, opt, max, strict=True)), input
        self.ranges[input] = (min, max)

    set_shape_input = set_shape


class Config:
    def __init__(self, module: SimulatedTensorrt) -> None:
        self._module, self.profiles, self.flags = module, list[Profile](), list[str]()

    def set_flag(self, flag: str) -> None:
        self.flags.append(flag)

    def set_memory_pool_limit(self, pool: str, pool_size: int) -> None: ...

    def create_timing_cache(self, serialized: bytes) -> Any:
        self._module.log.append(f"timings of {len(serialized)} bytes")
        return type("Cache", (), {"serialize": lambda self: b"measured"})()

    def set_timing_cache(self, cache: Any, ignore_mismatch: bool) -> bool:
        self._cache = cache
        return not ignore_mismatch

    def get_timing_cache(self) -> Any:
        return self._cache

    def add_optimization_profile(self, profile: Profile) -> int:
        self.profiles.append(profile)
        return len(self.profiles) - 1


class Builder:
    def __init__(self, module: SimulatedTensorrt, logger: Any) -> None:
        self._module = module

    def create_network(self, flags: int = 0) -> Network:
        return Network()

    def create_builder_config(self) -> Config:
        return Config(self._module)

    def create_optimization_profile(self) -> Profile:
        return Profile()

    def build_serialized_network(self, network: Network, config: Config) -> bytes | None:
        self._module.log.append(f"built {Path(network.graph).name}")
        if self._module.fails:
            return None
        assert config.flags == ["REFIT"]
        engine = {"graph": network.graph, "profiles": [profile.ranges for profile in config.profiles]}
        return json.dumps(engine).encode()


class OnnxParser:
    num_errors = 1

    def __init__(self, module: SimulatedTensorrt, network: Network, logger: Any) -> None:
        self._network = network

    def parse_from_file(self, model: str) -> bool:
        loaded = onnx.load(model, load_external_data=False)
        self._network.graph, self._network.inputs = model, loaded.graph.input
        kinds = {helper.tensor_dtype_to_string(tensor.data_type) for tensor in loaded.graph.initializer}
        return "TensorProto.DOUBLE" not in kinds

    def get_error(self, index: int) -> Any:
        return type("Error", (), {"desc": lambda self: "float64 is not supported"})()


class Runtime:
    def __init__(self, module: SimulatedTensorrt, logger: Any) -> None: ...

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> "Engine | None":
        return Engine(serialized_engine) if serialized_engine.startswith(b"{") else None


class Engine:
    def __init__(self, serialized: bytes) -> None:
        self._serialized, described = serialized, json.loads(serialized)
        self.profiles = described["profiles"]
        self.session = onnxruntime.InferenceSession(described["graph"])
        self.inputs = {part.name: part for part in self.session.get_inputs()}
        self._names = [*self.inputs, *(part.name for part in self.session.get_outputs())]

    @property
    def num_io_tensors(self) -> int:
        return len(self._names)

    def get_tensor_name(self, index: int) -> str:
        return str(self._names[index])

    def is_shape_inference_io(self, name: str) -> bool:
        return name in SHAPE_INPUTS

    def create_execution_context(self) -> "Context":
        return Context(self)

    def serialize(self) -> bytes:
        return self._serialized


class Context:
    def __init__(self, engine: Engine) -> None:
        self._engine, self._profile = engine, -1
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._outputs: dict[str, np.ndarray] = {}

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        self._profile = profile_index
        return True

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        low, high = self._engine.profiles[self._profile].get(name, (shape, shape))
        self._shapes[name] = shape
        if name in SHAPE_INPUTS:
            return shape == ()
        return all(a <= size <= b for a, size, b in zip(low, shape, high, strict=True))

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self._addresses[name] = memory
        return True

    def infer_shapes(self) -> list[str]:
        missing = [name for name in self._engine.inputs if name not in self._shapes]
        if not missing:
            fed = {name: self._read(name) for name in self._engine.inputs}
            outputs = [part.name for part in self._engine.session.get_outputs()]
            self._outputs = dict(zip(outputs, self._engine.session.run(outputs, fed), strict=True))
        return missing

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self._outputs[name].shape

    def execute_async_v3(self, stream_handle: int) -> bool:
        for name, output in self._outputs.items():
            assert output.dtype == np.float32, name
            ctypes.memmove(self._addresses[name], output.tobytes(), output.nbytes)
        return True

    def _read(self, name: str) -> np.ndarray:
        dtype = np.dtype(np.int64 if "int64" in self._engine.inputs[name].type else np.float32)
        shape = self._shapes[name]
        content = ctypes.string_at(self._addresses[name], int(np.prod(shape)) * dtype.itemsize)
        return np.frombuffer(content, dtype).reshape(shape)


class Refitter:
    def __init__(self, module: SimulatedTensorrt, engine: Engine, logger: Any) -> None:
        self.module, self.engine = module, engine

    def get_missing_weights(self) -> list[str]:
        return []

    def refit_cuda_engine(self) -> bool:
        return True


class OnnxParserRefitter:
    num_errors = 0

    def __init__(self, module: SimulatedTensorrt, refitter: Refitter, logger: Any) -> None:
        self._refitter = refitter

    def refit_from_file(self, model: str) -> bool:
        self._refitter.module.log.append(f"refitted {Path(model).name}")
        described = {"graph": model, "profiles": self._refitter.engine.profiles}
        self._refitter.engine.__init__(json.dumps(described).encode())  # type: ignore[misc]
        return True
