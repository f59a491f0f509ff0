"""The tables of what speaks: bundles, the engine, the speech it keeps, how text is read, and voices."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ..tts_engine.backends.voice_kind import DEVICE_NAMES, DEVICE_PATTERN
from ..tts_engine.reading.language import READING_STYLES, ReadingStyle
from ..tts_engine.voices.languages import OtherLanguage
from .configuration.settings_table import JSON, FiniteFloat, Integer, NamedText, SettingsTable

MAIN_BUNDLE = "vivavoce"  # of the table ``[bundle]``, as the APIs call their model

BundleName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]  # also a model of the APIs


class BundleTable(SettingsTable):
    """A model and its voices."""

    folder: NamedText = Field(
        default="default",  # needs no download and no GPU
        title="default, or a folder of Piper, Kokoro, CosyVoice or XTTS",
        description="`default`, the packaged voice `heart`, or a folder of Piper, Kokoro, CosyVoice or XTTS",
    )
    voice: NamedText | None = Field(
        default=None,
        title="the id of a loaded voice",
        description="id of its default voice; unset: its first",
    )
    device: str = Field(
        default="auto",
        pattern=DEVICE_PATTERN,
        title=f"one of {DEVICE_NAMES}",
        description="device of the networks: `cpu`, `cuda`, `cuda:1`, and others, such as `openvino`, for "
        "voices that ONNX Runtime computes; `auto`: a GPU for CosyVoice and XTTS if torch can use one, else "
        "the CPU",
    )
    precision: Literal["auto", "fp32", "fp32-fp16", "bf16", "fp16", "int8", "int4", "int4-int8"] = Field(
        default="auto",  # as published, but for the flow on a card; the others trade accuracy for speed
        title="auto, fp32, fp32-fp16, bf16, fp16, int8, int4 or int4-int8",
        description="number format of CosyVoice's language model, `fp32`, `bf16`, `fp16`, `int8` or `int4`, "
        "or of XTTS's, the first four; `int4-int8` and `fp32-fp16` also of the flow; `auto`: `fp32-fp16` for "
        "CosyVoice on a GPU, else `fp32`",
    )

    canaries: Annotated[dict[BundleName, Annotated[FiniteFloat, Field(gt=0, le=1)]], JSON] = Field(
        default={},
        title="parts, over 0 to 1, by bundle",
        description="further bundles that take a part of its new streams, up to 1 each, "
        "`{german-next = 0.1}`",
    )

    def loads_as(self, other: "BundleTable") -> bool:
        """Whether the same engine serves another bundle too."""
        loaded = {"folder", "device", "precision"}
        return self.model_dump(include=loaded) == other.model_dump(include=loaded)


class FurtherBundleTable(BundleTable):
    """One bundle that is served besides ``[bundle]``."""

    folder: Annotated[NamedText, Field(title="default, or a folder of voices")]


def _check_names(bundles: dict[str, FurtherBundleTable] | None) -> dict[str, FurtherBundleTable] | None:
    if MAIN_BUNDLE in (bundles or ()):
        raise ValueError(f"{MAIN_BUNDLE} is the name of the table [bundle]; give another one")
    return bundles


FurtherBundles = Annotated[
    dict[BundleName, FurtherBundleTable] | None,
    JSON,
    AfterValidator(_check_names),
    Field(title="tables [bundles.NAME] with folder = ..."),
]


class EngineTable(SettingsTable):
    """What renders speech."""

    executor: str = Field(
        default="auto",
        pattern=r"^(auto|torch|onnxruntime|tensorrt|ray(:(auto|local|\S+:\d{1,5}|ray://\S+))?)$",
        title="auto, torch, onnxruntime, tensorrt, ray or ray:HOST:PORT",
        description="what computes CosyVoice's networks: `torch`, `onnxruntime`, `tensorrt` (unproven); "
        "`auto`: `onnxruntime` on a processor for an exported bundle, else `torch`; `ray`: the replicas "
        "of the cluster that this machine has joined speak, `ray:HOST:PORT`: of the one with that head, "
        "`ray:local`: of one here",
    )
    max_streams: Integer = Field(
        default=100,  # one a call
        ge=1,
        le=10_000,
        title="streams from 1 to 10000",
        description="utterances at once; more are refused",
    )

    @property
    def ray_address(self) -> str | None:
        """The address of the cluster whose replicas speak; None without one."""
        executor, _, address = self.executor.partition(":")
        return (address or "auto") if executor == "ray" else None


class KeptSpeechTable(SettingsTable):
    """Rendered speech that is kept for streams that say the same."""

    phrases: Annotated[
        dict[Annotated[str, Field(min_length=1, max_length=256)], Path | tuple[str, ...]], JSON
    ] = Field(default={})
    folder: Path | None = None
    max_mb: Annotated[Integer, Field(ge=10, le=1_000_000)] = 1_000  # in the folder: 8 h for phones


class ReadingTable(SettingsTable):
    """How text is read."""

    locale: Literal["en-US", "en-CA", "en-GB", "en-IE", "en-AU", "en-NZ", "en-ZA", "en-IN"] = Field(
        default="en-US",  # the accent of the packaged voice
        title="en-US, en-CA, en-GB, en-IE, en-AU, en-NZ, en-ZA or en-IN",
        description="conventions of English numbers: `en-US`, `en-CA` (month first), `en-GB`, `en-IE`, "
        '`en-AU`, `en-NZ`, `en-ZA` (day first, "oh"), `en-IN` (day first)',
    )
    other_language: Literal["refuse", "refuse-guessed", "warn", "other-voice"] = Field(
        default="refuse",  # a guess can be wrong
        title="refuse, refuse-guessed, warn or other-voice",
        description="a part of an SSML document, and with `bundles` a text, in a language that its voice "
        "does not speak: `refuse`, `warn` or `other-voice`; `refuse-guessed` also refuses a text of the "
        "speech APIs that seems to be in one and states none, for which the others warn",
    )

    @property
    def refuses_guessed_language(self) -> bool:
        """Whether a text is refused that only seems to be in a language that its voice does not speak."""
        return self.other_language == "refuse-guessed"

    @property
    def stated_language(self) -> OtherLanguage:
        """What happens to a text that states a language that its voice does not speak."""
        return OtherLanguage.REFUSE if self.refuses_guessed_language else OtherLanguage(self.other_language)

    @property
    def style(self) -> ReadingStyle:
        """The conventions of the locale."""
        return READING_STYLES[self.locale]


class VoicesTable(SettingsTable):
    """Voices besides those of the bundles."""

    store: Path | None = Field(
        default=None,  # the packaged voice cannot clone
        title="a folder for enrolled voices",
        description="folder of enrolled voices, for a bundle of CosyVoice or XTTS. Of recordings in its "
        "folder `speakers`, `NAME.wav` with its words in `NAME.txt` becomes voice `NAME` at the start",
    )
    aliases: Annotated[dict[str, str], JSON] = Field(
        default={},
        title='a table of names, such as {alloy = "anna"}',
        description='other names of voices, `{alloy = "anna"}`; OpenAI\'s names are the default voice '
        "unless they are here",
    )
