"""Settings of a replica: the ``args`` of the application in Ray Serve's configuration file; and its log."""

import asyncio
import hashlib
import logging
import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .... import __version__
from ....tts_engine.backends.base import ProcessPolicy
from ....tts_engine.backends.divided_stages import StageHost
from ....tts_engine.backends.kinds import checkpoints_of
from ....tts_engine.backends.loading import divided_stages
from ....tts_engine.backends.voice_kind import DEVICE_PATTERN, LoadSettings
from ....tts_engine.engine import Engine, EngineConfig
from ....tts_engine.errors import BundleError
from ....tts_engine.reading.language import READING_STYLES
from ....tts_engine.reading.pronunciation.lexicon_files import LexiconFile
from ....tts_engine.scheduler import SchedulerPolicy
from ....tts_engine.voices.enrollable import EnrollableVoices

_SAMPLED_BYTES = 1 << 20  # of the beginning and of the end of a file: weights have gigabytes


class ReplicaSettings(BaseModel):
    """Settings of each replica, named as those of a server."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bundle: Annotated[str, Field(min_length=1)] = "default"  # or a folder that every machine has
    precision: Literal["auto", "fp32", "fp32-fp16", "bf16", "fp16", "int8", "int4", "int4-int8"] = "auto"
    device: Annotated[str, Field(pattern=DEVICE_PATTERN)] = "auto"
    executor: Literal["auto", "torch", "onnxruntime"] = "auto"
    engine_process: bool = False  # a replica is a process of its own already
    max_streams: Annotated[int, Field(ge=1, le=10_000)] = 100  # of one replica
    locale: Literal["en-US", "en-CA", "en-GB", "en-IE", "en-AU", "en-NZ", "en-ZA", "en-IN"] = "en-US"
    lexicon: Path | None = None
    stages: Literal["together", "apart"] = "together"  # of CosyVoice: a deployment, or decode and render
    enrolment: Literal["together", "apart"] = "together"  # with speech, or a deployment

    @model_validator(mode="after")
    def _check_stages(self) -> "ReplicaSettings":
        if self.stages == "apart" and (self.engine_process or self.bundle == "default"):
            raise ValueError("stages apart need a CosyVoice bundle, and no engine_process")
        if self.enrolment == "apart" and self.bundle == "default":
            raise ValueError("the packaged voice clones no voices, so enrolment cannot be apart")
        return self

    @property
    def deployments(self) -> tuple[str, ...]:
        """Names of the application's deployments; gateways call the first."""
        speaking = ("voice",) if self.stages == "together" else ("decode", "render")
        return speaking if self.enrolment == "together" else (*speaking, "enrolment")

    async def open_engine(self) -> tuple[Engine, str]:
        """Load the bundle; the engine, and the digest of what decides how it speaks.

        Raises BundleError, BadRequest and MissingExtra.
        """
        engine = await Engine.open(
            self.bundle,
            precision=self.precision,
            device=self.device,
            executor=self.executor,
            config=self.engine_config(),
            process=ProcessPolicy() if self.engine_process else None,
        )
        return engine, self.digest()

    async def open_decode_engine(self, render_stage: Any) -> Engine:
        """The engine of ``open_engine`` over a ``RemoteStage`` of the bundle's kind."""
        load = divided_stages(self.bundle).load_decoder
        backend = await asyncio.to_thread(load, self._load_settings(), render_stage)
        return await Engine.open(backend=backend, config=self.engine_config())

    def load_render_host(self, replica: str) -> StageHost:
        """Load the render stage of the bundle only. replica: its id. Raises as ``open_engine``."""
        return divided_stages(self.bundle).load_host(self._load_settings(), replica, self.digest())

    def _load_settings(self) -> LoadSettings:
        return LoadSettings(Path(self.bundle), None, self.precision, self.device, self.executor)

    def open_encoders(self) -> EnrollableVoices:
        """The encoders of the bundle, without its networks. Raises BundleError and MissingExtra."""
        folder = Path(self.bundle)
        return checkpoints_of(folder).open_encoders(folder)

    def engine_config(self) -> EngineConfig:
        """The configuration of a replica's engine. Raises BadLexicon."""
        return EngineConfig(
            scheduler=SchedulerPolicy(max_streams=self.max_streams),
            reading=READING_STYLES[self.locale],
            lexicon=LexiconFile(self.lexicon) if self.lexicon else None,
        )

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
    """The files of a bundle, without hidden ones and the measurements of earlier releases."""
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


_PACKAGE = __name__.partition(".")[0]


def log_with_serve() -> None:
    """Write this process's lines to the replica's file, from the level on that ``logging_config`` names.

    Without it only warnings would be written.
    """
    ours, serves = logging.getLogger(_PACKAGE), logging.getLogger("ray.serve")
    ours.setLevel(serves.level)
    ours.handlers[:] = serves.handlers
    ours.propagate = False
