"""The table ``[bundles]`` of the configuration: further bundles of one server."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

BundleName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]


class BundleSetting(BaseModel):
    """One bundle, ``[bundles.NAME]``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: Annotated[str, Field(min_length=1)]  # or "default" for the packaged voice
    voice: Annotated[str, Field(min_length=1)] | None = None  # id of its default voice; None: its first
    workers: Annotated[int, Field(ge=1, le=16)] | None = None  # of Piper; None: two, or one for each core
