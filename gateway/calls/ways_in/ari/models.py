"""Events and resources of Asterisk's REST interface, as far as they are read. Unknown fields are ignored.

Source: rest-api/api-docs/events.json and channels.json of Asterisk 23; measured with Asterisk 23.4.1.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class _AriModel(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class AriCallerId(_AriModel):
    """Number and name of a party."""

    number: str = ""
    name: str = ""


class AriDialPlanPlace(_AriModel):
    """Where a channel is in the dial plan."""

    context: str = ""
    exten: str = ""
    priority: int = 1
    app_name: str = ""  # of the dial plan, that the channel is in
    app_data: str = ""


class AriChannel(_AriModel):
    """A channel."""

    id: str
    name: str = ""  # technology, slash, and what is unique there
    caller: AriCallerId = AriCallerId()
    connected: AriCallerId = AriCallerId()
    dialplan: AriDialPlanPlace = AriDialPlanPlace()
    channelvars: dict[str, str] = {}

    @property
    def technology(self) -> str:
        """The channel driver, as ``PJSIP``."""
        return self.name.partition("/")[0]


class AriVariable(_AriModel):
    """The value of a channel's variable."""

    value: str


class AriModule(_AriModel):
    """A module that is loaded."""

    status: str  # "Running", or why not


class StasisStart(_AriModel):
    """A channel has entered the application."""

    type: Literal["StasisStart"]
    channel: AriChannel
    args: list[str] = []
    replace_channel: AriChannel | None = None  # whose place it takes, after a transfer by a telephone


class ChannelLeft(_AriModel):
    """A channel has left the application, or is gone."""

    type: Literal["StasisEnd", "ChannelDestroyed"]
    channel: AriChannel
    cause: int = 0  # of Q.850; 0: not known
    tech_cause: int = 0  # of SIP, of a channel of it; 0: not known


class ChannelDtmfReceived(_AriModel):
    """A key was pressed on a channel."""

    type: Literal["ChannelDtmfReceived"]
    channel: AriChannel
    digit: str


class ChannelHold(_AriModel):
    """A caller put the call on hold, or is back."""

    type: Literal["ChannelHold", "ChannelUnhold"]
    channel: AriChannel


class Dial(_AriModel):
    """A channel that is being called has come further."""

    type: Literal["Dial"]
    peer: AriChannel
    dialstatus: str = ""
    forward: str = ""  # extension to which its telephone forwards the call
    forwarded: AriChannel | None = None  # the channel on which Asterisk calls there

    @property
    def channel(self) -> AriChannel:
        """The channel that is called."""
        return self.peer


class AriBridge(_AriModel):
    """A bridge."""

    id: str
    channels: list[str] = []  # ids


AriEvent = StasisStart | ChannelLeft | ChannelDtmfReceived | ChannelHold | Dial
ARI_EVENT: TypeAdapter[AriEvent] = TypeAdapter(Annotated[AriEvent, Field(discriminator="type")])
ARI_CHANNELS: TypeAdapter[list[AriChannel]] = TypeAdapter(list[AriChannel])
ARI_BRIDGES: TypeAdapter[list[AriBridge]] = TypeAdapter(list[AriBridge])
REPLACED_EVENT = "ApplicationReplaced"  # another gateway has registered the application
ARI_EVENT_TYPES = frozenset(
    {"StasisStart", "StasisEnd", "ChannelDestroyed", "ChannelDtmfReceived", "ChannelHold", "ChannelUnhold"}
    | {"Dial"}
)
