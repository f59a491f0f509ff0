"""The configuration of the server: its tables, each declared beside what it configures.

``cli.configuration`` reads it. Code gets the table that it needs.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ..access.settings import AccessTable, HttpTable
from ..apis.settings import ApisTable
from ..calls.settings import AgentChoice, CallsTable, RecordingsTable, SoundsTable
from ..calls.ways_in.ari.settings import AriTable
from ..calls.ways_in.audiosocket.settings import AudioSocketTable
from ..calls.ways_in.browser.settings import BrowserTable, LanguageModelTable
from ..calls.ways_in.media_streams.settings import MediaStreamsTable
from ..calls.ways_in.rtp.settings import RtpTable
from ..calls.ways_in.sip.settings import SipTable
from ..cluster.settings import ClusterTable
from ..engine_settings import (
    BundleTable,
    EngineTable,
    FurtherBundles,
    KeptSpeechTable,
    ReadingTable,
    VoicesTable,
)
from .settings_table import JSON, FiniteFloat, SettingsTable

DEFAULT_NAME = "default"  # of the agent and the lexicon that nobody chose


class ServerTable(SettingsTable):
    """The process of the server."""

    drain_s: FiniteFloat = Field(
        default=10.0,  # a long sentence; supervisors kill a process after 30 s or more
        ge=0,
        le=600,
        title="seconds from 0 to 600",
        description="seconds that calls have to finish their sentence at shutdown",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO",
        title="DEBUG (shows what is said), INFO, WARNING or ERROR",
        description="`DEBUG` (includes spoken text), `INFO`, `WARNING` or `ERROR`",
    )
    log_format: Literal["text", "json"] = Field(
        default="text",
        title="text or json",
        description="`json`: a line is an object, with the call, stream, key and trace; without spoken text, "
        "also at `DEBUG`",
    )


class Settings(SettingsTable):
    """All settings of the server. Frozen."""

    http: HttpTable = HttpTable()
    access: AccessTable = AccessTable()
    server: ServerTable = ServerTable()
    cluster: ClusterTable = ClusterTable()
    bundle: BundleTable = BundleTable()
    bundles: FurtherBundles = None  # an empty table too: bundles may be added to it at SIGHUP
    engine: EngineTable = EngineTable()
    voices: VoicesTable = VoicesTable()
    reading: ReadingTable = ReadingTable()
    lexicons: Annotated[dict[Annotated[str, Field(min_length=1, max_length=256)], Path], JSON] = Field(
        default={},
        title="files of pronunciations (.toml, .pls), or folders of them, by name",
        description="pronunciations: a `.toml` or `.pls` file, or a folder of them, read again when it "
        "changes. That of the name `default` is for all speech; others are for requests that name one, in "
        "`pronunciation_dict_id` of Cartesia's, `pronunciation_dictionary_locators` of ElevenLabs' clients",
    )
    kept_speech: Annotated[KeptSpeechTable | None, JSON] = Field(
        default=None,
        title='a table, {phrases = {default = "phrases.txt"}, folder = "kept", max_mb = 1000}',
        description="rendered speech for calls that say the same: `phrases`, rendered at the start, by "
        "voice, `default` for the default one, a list, or a file with one on each line; `folder`, where what "
        "is kept is written and found after a restart, which only the user of the server may read, with at "
        "most `max_mb` in it, 1000 if unset. See [speech said again](#speech-said-again)",
    )
    apis: ApisTable = ApisTable()
    calls: CallsTable = CallsTable()
    agents: Annotated[dict[str, AgentChoice], JSON] = Field(
        default={},
        title="script:FILE, loop:FILE, keys or none",
        description="agents by name: `script:FILE` speaks its paragraphs, `loop:FILE` over and over, `keys` "
        "speaks the DTMF keys, `none` is silent. That of the name `default` answers phones and browsers; "
        "unset: `keys` on a phone, the greeting in a browser. Others are for announced calls",
    )
    recordings: Annotated[RecordingsTable | None, JSON] = Field(
        default=None,
        title='a table, {folder = "recordings", all_calls = false}',
        description="recordings of calls: their `folder`, and `all_calls = true` to record every call from "
        "its beginning, else those that a program asks for; unset: no call can be recorded",
    )
    sounds: SoundsTable = SoundsTable()
    audiosocket: AudioSocketTable = AudioSocketTable()
    rtp: RtpTable = RtpTable()
    sip: SipTable = SipTable()
    ari: AriTable = AriTable()
    media_streams: MediaStreamsTable = MediaStreamsTable()
    browser: BrowserTable = BrowserTable()
    llm: Annotated[LanguageModelTable | None, JSON] = Field(
        default=None,  # typed text is spoken as it is
        title="a table [llm] with base_url = ... and model = ...",
        description="a language model that answers the text typed on the page, behind an OpenAI-compatible "
        'server: `base_url`, `"http://127.0.0.1:11434/v1"`, `model` and `api_key`, which is better in the '
        "environment, `VIVAVOCE_LLM_API_KEY`",
    )
