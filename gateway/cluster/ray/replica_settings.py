"""Settings of a replica: the ``args`` of the application in Ray Serve's configuration file."""

import hashlib
import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from .... import __version__
from ....tts_engine.backends.process import ProcessPolicy
from ....tts_engine.engine import Engine, EngineConfig
from ....tts_engine.errors import BundleError
from ....tts_engine.reading.pronunciation.lexicon_files import LexiconFile
from ....tts_engine.reading.reading_style import READING_STYLES
from ....tts_engine.scheduler import SchedulerPolicy

_SAMPLED_BYTES = 1 << 20  # of the beginning and of the end of a file: weights have gigabytes


class ReplicaSettings(BaseModel):
    """Settings of each replica, named as those of a server."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bundle: Annotated[str, Field(min_length=1)] = "default"  # or a folder that every machine has
    precision: Literal["fp32", "bf16", "fp16", "int8", "int4"] = "fp32"
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$")] = "auto"
    executor: Literal["auto", "torch", "onnxruntime"] = "auto"
    engine_process: bool = False  # a replica is a process of its own already
    max_streams: Annotated[int, Field(ge=1, le=10_000)] = 100  # of one replica
    locale: Literal["en-US", "en-CA", "en-GB", "en-IE", "en-AU", "en-NZ", "en-ZA", "en-IN"] = "en-US"
    lexicon: Path | None = None

    async def open_engine(self) -> tuple[Engine, str]:
        """Load the bundle; the engine, and the digest of what decides how it speaks.

        Raises BundleError, BadRequest and MissingExtra.
        """
        config = EngineConfig(
            scheduler=SchedulerPolicy(max_streams=self.max_streams),
            reading=READING_STYLES[self.locale],
            lexicon=LexiconFile(self.lexicon) if self.lexicon else None,
        )
        engine = await Engine.open(
            self.bundle,
            precision=self.precision,
            device=self.device,
            executor=self.executor,
            config=config,
            process=ProcessPolicy() if self.engine_process else None,
        )
        return engine, self.digest()

    def digest(self) -> str:
        """A digest of the bundle's files, the settings that change speech, and the version of the code.

        Of a large file, its size, beginning and end count. Raises BundleError.
        """
        found = hashlib.sha256(f"{__version__} {self.precision} {self.locale}".encode())
        if self.bundle == "default":
            found.update(metadata.version("hibari-tts").encode())
        else:
            folder = Path(self.bundle)
            try:
                for file in sorted(_weights(folder)):
                    found.update(str(file.relative_to(folder)).encode() + _sample(file))
            except OSError as error:
                raise BundleError(f"{error.filename}: {error.strerror}") from error
        return found.hexdigest()[:16]


def _weights(folder: Path) -> Iterator[Path]:
    """The files of a bundle, without the hidden ones and the measurements that a server writes there."""
    for file in folder.rglob("*"):
        if file.is_file() and not file.name.startswith(".") and file.name != "executors.json":
            yield file


def _sample(file: Path) -> bytes:
    size = file.stat().st_size
    with file.open("rb") as opened:
        parts = [opened.read(_SAMPLED_BYTES)]
        if size > 2 * _SAMPLED_BYTES:
            opened.seek(-_SAMPLED_BYTES, os.SEEK_END)
        parts.append(opened.read(_SAMPLED_BYTES))
    return str(size).encode() + hashlib.sha256(b"".join(parts)).digest()
