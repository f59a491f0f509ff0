"""Reads the inputs and outputs of an ONNX file without loading its weights.

The file is a sequence of tagged, length-prefixed fields. The reader parses the fields that describe the graph
and seeks over the weights, so that checking a gigabyte takes milliseconds and a truncated file is noticed.

Source: onnx.proto3 of the ONNX project (ModelProto.graph = 7; GraphProto.input = 11, output = 12), and the
wire format of Protocol Buffers.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

# Field numbers: of ModelProto, of GraphProto, of TensorProto.
_GRAPH = 7
_INITIALIZER, _INPUT, _OUTPUT = 5, 11, 12
_NAME = 8
_MAX_DESCRIPTION_BYTES = 100_000  # of one input or output


class OnnxFileError(ValueError):
    """The file is no complete ONNX model; the message says at which byte it fails."""


@dataclass(frozen=True, slots=True)
class OnnxTensorInfo:
    """One input or output of a graph."""

    name: str
    type: str  # numpy's name, e.g. float32
    dimensions: tuple[int | None, ...]  # None: any size

    def __str__(self) -> str:
        dimensions = ", ".join("?" if size is None else str(size) for size in self.dimensions)
        return f"{self.type} [{dimensions}]"


@dataclass(frozen=True, slots=True)
class OnnxSignature:
    """Inputs and outputs of a graph, in order."""

    inputs: tuple[OnnxTensorInfo, ...]
    outputs: tuple[OnnxTensorInfo, ...]


def read_onnx_signature(path: Path) -> OnnxSignature:
    """Read the inputs and outputs of a model file.

    Raises OnnxFileError, and OSError if the file cannot be opened.
    """
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(0)
        # Reads past the graph to the end of the file, to notice a truncated one.
        graphs = [_graph_signature(file, stop) for field, stop in _fields(file, end) if field == _GRAPH]
    if len(graphs) != 1:
        raise OnnxFileError(f"{end:,} bytes with {len(graphs)} graphs, expected one; is it an ONNX model?")
    return graphs[0]


def _graph_signature(file: BinaryIO, end: int) -> OnnxSignature:
    inputs: list[OnnxTensorInfo] = []
    outputs: list[OnnxTensorInfo] = []
    weights: set[str] = set()
    for field, stop in _fields(file, end):
        if field in (_INPUT, _OUTPUT):
            (inputs if field == _INPUT else outputs).append(_tensor_info(_read_until(file, stop)))
        elif field == _INITIALIZER:
            weights.add(_initializer_name(file, stop))
    return OnnxSignature(tuple(tensor for tensor in inputs if tensor.name not in weights), tuple(outputs))


def _initializer_name(file: BinaryIO, end: int) -> str:
    """Name of a weight; old models list their weights among the inputs too."""
    for field, stop in _fields(file, end):
        if field == _NAME:
            return _read_until(file, stop).decode("utf-8", "replace")
    return ""


def _tensor_info(description: bytes) -> OnnxTensorInfo:
    try:
        value = onnx.ValueInfoProto.FromString(description)
    except DecodeError as error:
        raise OnnxFileError(f"an input or output cannot be read: {error}") from error
    tensor = value.type.tensor_type
    dimensions = tuple(d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim)
    return OnnxTensorInfo(value.name, _type_name(tensor.elem_type), dimensions)


def _type_name(number: int) -> str:
    try:
        return str(onnx.helper.tensor_dtype_to_np_dtype(number))
    except KeyError:
        return f"type {number}"


def _fields(file: BinaryIO, end: int) -> Iterator[tuple[int, int]]:
    """Yield the number and the end of each field up to ``end``, with the file positioned at its content."""
    while file.tell() < end:
        tag = _varint(file)
        stop = _field_end(file, tag & 7)
        if stop > end:
            raise OnnxFileError(
                f"a field would end at byte {stop:,}, but only {end:,} bytes are there: incomplete"
            )
        yield tag >> 3, stop
        file.seek(stop)


def _field_end(file: BinaryIO, wire_type: int) -> int:
    match wire_type:
        case 0:
            _varint(file)
            return file.tell()
        case 1:
            return file.tell() + 8
        case 2:
            length = _varint(file)
            return file.tell() + length
        case 5:
            return file.tell() + 4
        case _:
            raise OnnxFileError(f"invalid data at byte {file.tell():,}; is it an ONNX model?")


def _varint(file: BinaryIO) -> int:
    value = 0
    for shift in range(0, 64, 7):
        byte = file.read(1)
        if not byte:
            raise OnnxFileError(f"the file ends inside a field, at byte {file.tell():,}: incomplete")
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    raise OnnxFileError(f"invalid data at byte {file.tell():,}; is it an ONNX model?")


def _read_until(file: BinaryIO, stop: int) -> bytes:
    if stop - file.tell() > _MAX_DESCRIPTION_BYTES:
        raise OnnxFileError(
            f"the description of an input or output takes {stop - file.tell():,} bytes; "
            f"allowed: {_MAX_DESCRIPTION_BYTES:,}"
        )
    return file.read(stop - file.tell())
