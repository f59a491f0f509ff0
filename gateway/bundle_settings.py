"""The table ``[bundles]`` of the configuration: further bundles of one server."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ..tts_engine.backends.devices import DEVICE_PATTERN

MAIN_BUNDLE = "vivavoce"  # of the setting ``bundle``, as the APIs call their model

BundleName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]  # also a model of the APIs


class BundleSetting(BaseModel):
    """One bundle, ``[bundles.NAME]``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: Annotated[str, Field(min_length=1)]  # or "default" for the packaged voice
    voice: Annotated[str, Field(min_length=1)] | None = None  # id of its default voice; None: its first
    workers: Annotated[int, Field(ge=1, le=16)] | None = None  # of Piper; None: two, or one for each core
    version: Annotated[str, Field(max_length=64)] = ""  # a new one has the folder loaded again
    device: Annotated[str, Field(pattern=DEVICE_PATTERN)] = "auto"
    precision: Literal["fp32", "bf16", "fp16", "int8", "int4", "int4-int8"] = "fp32"  # of CosyVoice and XTTS
    canary_of: BundleName | None = None  # a bundle, "vivavoce" for the main one
    share: Annotated[float, Field(gt=0, le=1)] = 0.1  # of the new streams of ``canary_of``, for this one

    def loads_as(self, other: "BundleSetting") -> bool:
        """Whether the same engine serves another setting too."""
        loaded = {"folder", "workers", "version", "device", "precision"}
        return self.model_dump(include=loaded) == other.model_dump(include=loaded)


def _check_names(bundles: dict[str, BundleSetting]) -> dict[str, BundleSetting]:
    if MAIN_BUNDLE in bundles:
        raise ValueError(f"{MAIN_BUNDLE} is the name of the setting bundle; give another one")
    return bundles


BundleTable = Annotated[dict[BundleName, BundleSetting], AfterValidator(_check_names)]
