"""Engines on file: a line of JSON that says what an engine was made of and for, then the engine.

    onnx/tensorrt/flow_step.bf16.engine    {"structure", "weights", "card", "version", "bytes", "sha256"}

An engine belongs to one card and one version of TensorRT. One with other weights, but of the same structure,
can be refitted.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from ...whole_files import written_whole

_MAX_HEADER_BYTES = 4096


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """What an engine was made of and for."""

    structure: str  # digest of the graph without its weights
    weights: str  # digest of the bundle
    card: str
    version: str  # of TensorRT


class EngineFileError(ValueError):
    """No usable engine; the message is the reason, without the path."""


def read_engine(path: Path, expected: EngineIdentity) -> tuple[bytes, bool]:
    """The engine of a file, and whether its weights are those expected.

    Raises EngineFileError if it is missing, damaged, or of another graph, card or version.
    """
    try:
        with path.open("rb") as file:
            header = json.loads(file.readline(_MAX_HEADER_BYTES))
            engine = file.read()
        identity = EngineIdentity(**{name: str(header[name]) for name in EngineIdentity.__slots__})
        size, digest = int(header["bytes"]), str(header["sha256"])
    except FileNotFoundError:
        raise EngineFileError("not built yet") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngineFileError(f"not readable ({error})") from error
    if len(engine) != size:
        raise EngineFileError(f"truncated: {len(engine):,} of {size:,} bytes")
    if hashlib.sha256(engine).hexdigest() != digest:
        raise EngineFileError("damaged: its digest differs")
    for what, found, wanted in (
        ("built on another card", identity.card, expected.card),
        ("built by another version of TensorRT", identity.version, expected.version),
        ("built from another graph", identity.structure, expected.structure),
    ):
        if found != wanted:
            raise EngineFileError(f"{what} ({found}, expected {wanted})")
    return engine, identity.weights == expected.weights


def write_engine(path: Path, engine: bytes, identity: EngineIdentity) -> None:
    """Write beside the place of the file, and move it there complete. Raises OSError."""
    digest = hashlib.sha256(engine).hexdigest()
    header = json.dumps({**asdict(identity), "bytes": len(engine), "sha256": digest})
    with written_whole(path) as incomplete:
        incomplete.write_bytes(header.encode() + b"\n" + engine)
