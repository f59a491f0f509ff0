"""The keys of the server's configuration, each with its allowed values, its default and the reason for it.

``settings_loader`` reads them. The values are passed on as the small frozen dataclasses of the modules that
use them.
"""

from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from ..adapters.ice_settings import MAX_PORT, MIN_PORT, MediaPorts
from ..adapters.unidentified_connections import DEFAULT_MAX_UNIDENTIFIED
from ..tts_engine.backends.devices import DEVICE_NAMES, DEVICE_PATTERN
from ..tts_engine.reading.reading_style import READING_STYLES, ReadingStyle
from .bundle_settings import BundleTable
from .calls.ways_in.browser.ice_servers import IceServerSetting
from .phone_system_settings import PhoneSystemSettings, parse_ports
from .web.connection_limits import DEFAULT_REQUEST_S

ENVIRONMENT_PREFIX = "VIVAVOCE_"


def _reject_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a number is wanted")
    return value


def _check_network(value: str) -> str:
    ip_network(value)
    return value


def _parse_digits(value: object) -> object:
    # Environment variables are text, which a Literal of numbers does not accept.
    return int(value) if isinstance(value, str) and value.isdecimal() else value


_Integer = Annotated[int, BeforeValidator(_reject_bool)]
_FiniteFloat = Annotated[float, BeforeValidator(_reject_bool), Field(allow_inf_nan=False)]
_Port = Annotated[_Integer, Field(ge=0, le=65_535, description="a port from 0 (any free one) to 65535")]
_AGENT_PATTERN = r"^(keys|none|script:.+)$"
_Host = Annotated[str, Field(min_length=1, max_length=253, description="a host name or an IP address")]


class Settings(PhoneSystemSettings, BaseSettings):
    """All settings of the server. Frozen.

    The description of a field is what it allows, as an error message shows it.
    """

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix=ENVIRONMENT_PREFIX, env_ignore_empty=True
    )

    # Addresses

    # Loopback by default: the page and the calls API give access to every call.
    host: _Host = "127.0.0.1"  # of HTTP
    http_port: _Port = 8080
    # Loopback by default, because AudioSocket has no authentication.
    audiosocket_host: _Host = "127.0.0.1"
    audiosocket_port: _Port = 9092  # as in Asterisk's examples
    # None: no gRPC, which needs an extra. On the host of HTTP.
    grpc_port: Annotated[_Port | None, Field(description="a port from 0 (any free one) to 65535")] = None
    # A second, explicit switch, so that a mistyped host does not open the server to a network.
    listen_beyond_loopback: Annotated[bool, Field(description="true or false")] = False

    # Access

    # Without a file, no key is required, which is allowed on loopback only.
    keys_file: Annotated[Path | None, Field(description="the file that 'vivavoce keys add' writes")] = None
    # Secret, because it may hold a password.
    redis_url: Annotated[
        SecretStr | None, Field(description='a URL of Redis or Valkey, "redis://", "rediss://" or "unix://"')
    ] = None  # None: nothing is shared with other gateways
    without_keys: Annotated[bool, Field(description="true or false")] = (
        False  # required beyond loopback instead
    )
    allowed_origins: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[a-z][a-z0-9+.-]*://(\*\.)?[^/\s*]+$")], ...] | None,
        Field(
            description='a list of origins, such as ["https://app.example.org", "https://*.example.org", '
            '"app://obsidian.md"], as browsers send them: no path, no slash at the end'
        ),
    ] = None  # the server's own page needs no entry
    trusted_proxies: Annotated[
        tuple[Annotated[str, AfterValidator(_check_network)], ...],
        Field(description='a list of IP addresses and networks, such as ["10.0.0.0/24"]'),
    ] = ("127.0.0.1", "::1")  # a proxy on this machine; whose X-Forwarded-For and X-Forwarded-Proto are read
    # Open WebUI asks for the lists without its key.
    public_lists: Annotated[bool, Field(description="true or false")] = False
    reference_hosts: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...] | None,
        Field(description='a list of hosts that recordings may come from, "host" or "host:port"'),
    ] = None  # hosts on the public internet need no entry

    # The agent

    # None: a phone gets ``keys``, a browser the greeting, so that a first caller hears something.
    agent: Annotated[
        Annotated[str, Field(pattern=_AGENT_PATTERN)] | None,
        Field(description="script:FILE, keys or none"),
    ] = None
    agents: Annotated[
        dict[str, Annotated[str, Field(pattern=_AGENT_PATTERN)]] | None,
        Field(description='a table of names, such as {sales = "script:sales.txt"}'),
    ] = None  # that an announced call may name
    script_tokens_per_s: Annotated[
        _FiniteFloat, Field(ge=1, le=10_000, description="tokens a second, 1 to 10000")
    ] = 40.0  # the speed of a hosted language model of medium size
    script_pause_s: Annotated[_FiniteFloat, Field(ge=0, le=60, description="seconds from 0 to 60")] = (
        0.7  # the usual pause between two turns of one speaker
    )
    script_loops: Annotated[bool, Field(description="true or false")] = False  # False: hang up at the end

    # The voice

    bundle: Annotated[
        str, Field(min_length=1, description="default, or a folder of Piper, Kokoro, CosyVoice or XTTS")
    ] = "default"  # the packaged voice, which needs no download and no GPU
    # Of the files behind ``bundle``: where they change under one name, a new one has them loaded at SIGHUP.
    bundle_version: Annotated[str, Field(max_length=64, description="at most 64 characters")] = ""
    bundles: Annotated[BundleTable | None, Field(description="tables [bundles.NAME] with folder = ...")] = (
        None  # served besides ``bundle``
    )
    other_language: Annotated[
        Literal["refuse", "warn", "other-voice"], Field(description="refuse, warn or other-voice")
    ] = "refuse"  # a text, with [bundles], or a part of SSML, in a language that its voice does not speak
    voice: Annotated[
        Annotated[str, Field(min_length=1)] | None, Field(description="the id of a loaded voice")
    ] = None  # None: the first voice of the bundle
    voice_store: Annotated[Path | None, Field(description="a folder for enrolled voices")] = (
        None  # the packaged voice cannot clone
    )
    speakers: Annotated[
        Path | None, Field(description="a folder of recordings, NAME.wav with NAME.txt, to be voices NAME")
    ] = None  # voices can also be enrolled by command or over an API
    # None: nothing is exchanged by path, as a client could otherwise fill the disk.
    exchange_folder: Annotated[
        Path | None,
        Field(description="a folder of recordings that clients name, and of speech written for them"),
    ] = None
    voice_aliases: Annotated[
        dict[str, str] | None, Field(description='a table of names, such as {alloy = "anna"}')
    ] = None  # without an alias, OpenAI's names are the default voice
    model_aliases: Annotated[
        dict[str, Annotated[str, Field(pattern=r"^vivavoce(/.+)?$")]] | None,
        Field(description='a table of names, such as {kokoro = "vivavoce", "tts-anna" = "vivavoce/anna"}'),
    ] = None
    # False: clients of other servers send those servers' models, and there is only one here.
    strict_models: Annotated[bool, Field(description="true or false")] = False
    voice_list: Annotated[Literal["objects", "names"], Field(description="objects or names")] = (
        "objects"  # as Open WebUI reads them; names for clients of older versions of Kokoro-FastAPI
    )
    precision: Annotated[
        Literal["fp32", "bf16", "fp16", "int8", "int4", "int4-int8"],
        Field(description="fp32, bf16, fp16, int8, int4 or int4-int8"),
    ] = "fp32"  # as published; the others trade accuracy for speed or memory
    device: Annotated[str, Field(pattern=DEVICE_PATTERN, description=f"one of {DEVICE_NAMES}")] = (
        "auto"  # a GPU if torch can use one and the bundle takes torch, else the CPU
    )
    executor: Annotated[
        Literal["auto", "torch", "onnxruntime", "tensorrt", "ray"],
        Field(description="auto, torch, onnxruntime, tensorrt or ray"),
    ] = "auto"  # onnxruntime on a processor for an exported bundle of CosyVoice, else torch
    ray_address: Annotated[
        str, Field(pattern=r"^(auto|local|\S+:\d{1,5}|ray://\S+)$", description="auto, local or HOST:PORT")
    ] = "auto"  # the cluster that this machine belongs to
    # False: with the packaged voice a second process does not improve the pacing of packets; it costs 130 MB
    # and a tenth more compute.
    engine_process: Annotated[bool, Field(description="true or false")] = False
    speed: Annotated[_FiniteFloat, Field(ge=0.5, le=2.0, description="a factor from 0.5 to 2.0")] = 1.0
    lexicon: Annotated[
        Path | None, Field(description="a file of pronunciations (.toml, .pls), or a folder of them")
    ] = None  # the voice's own rules

    lexicons: Annotated[
        dict[Annotated[str, Field(min_length=1, max_length=256)], Path] | None,
        Field(description="files or folders of pronunciations by name"),
    ] = None  # those that requests of ElevenLabs' and Cartesia's clients name

    # English numbers

    locale: Annotated[
        Literal["en-US", "en-CA", "en-GB", "en-IE", "en-AU", "en-NZ", "en-ZA", "en-IN"],
        Field(description="en-US, en-CA, en-GB, en-IE, en-AU, en-NZ, en-ZA or en-IN"),
    ] = "en-US"  # the accent of the packaged voice
    # None: as usual in the locale.
    date_order: Annotated[
        Literal["month-first", "day-first"] | None, Field(description="month-first or day-first")
    ] = None
    zero: Annotated[Literal["zero", "oh"] | None, Field(description="zero or oh")] = None
    digit_pairs: Annotated[bool, Field(description="true or false")] = False

    # Limits

    # Hz. Every Asterisk accepts 8000; an older one ends a call at 24000.
    audiosocket_rate: Annotated[
        Literal[8000, 24000, "caller"],
        BeforeValidator(_parse_digits),
        Field(description="8000, 24000 (Hz; needs Asterisk 20.17, 21.12, 22.7, 23.1 or later) or caller"),
    ] = 8000
    # True: only calls that were announced over POST /v1/calls/expected.
    expected_calls_only: Annotated[bool, Field(description="true or false")] = False
    max_input_characters: Annotated[
        _Integer, Field(ge=1, le=200_000, description="characters from 1 to 200000")
    ] = 4096  # of one request, as at OpenAI
    max_calls: Annotated[_Integer, Field(ge=1, le=10_000, description="calls from 1 to 10000")] = (
        100  # measured: two cores serve as many without an underrun
    )
    max_unidentified: Annotated[
        _Integer, Field(ge=2, le=100_000, description="connections from 2 to 100000")
    ] = DEFAULT_MAX_UNIDENTIFIED  # of each listener, at most an eighth of the descriptors
    max_streams: Annotated[_Integer, Field(ge=1, le=10_000, description="streams from 1 to 10000")] = (
        100  # one a call
    )

    # Calls

    caller_speech: Annotated[
        Literal["tell", "discard"],
        Field(description="tell (report it) or discard (stop what is playing, and report it)"),
    ] = "tell"  # a cough must not stop a menu or an announcement
    greeting: Annotated[str, Field(max_length=2_000, description="at most 2000 characters")] = (
        "Hello, this is vivavoce. Type something below, and I will say it."  # to browsers only
    )
    ice_servers: Annotated[
        tuple[IceServerSetting, ...] | None,
        Field(
            description='a list of "stun:HOST:PORT" and of tables {urls = ["turn:HOST:PORT"], '
            'username = "...", credential = "..."}'
        ),
    ] = None  # none are needed on one network
    webrtc_ports: Annotated[
        MediaPorts | None,
        NoDecode,  # not JSON in the environment
        BeforeValidator(parse_ports),
        Field(description=f'a range of UDP ports within {MIN_PORT}-{MAX_PORT}, such as "40000-40999"'),
    ] = None  # any free port, which needs no firewall rule on one network
    llm_base_url: Annotated[
        Annotated[str, Field(pattern=r"^https?://")] | None,
        Field(description="the URL of an OpenAI-compatible server, up to before /chat/completions"),
    ] = None  # without one, typed text is spoken as it is
    llm_model: Annotated[
        Annotated[str, Field(min_length=1)] | None, Field(description="the model's name there")
    ] = None
    llm_api_key: Annotated[SecretStr | None, Field(description="a key of that server")] = None
    public_url: Annotated[
        Annotated[str, Field(pattern=r"^https?://[^/\s?#]+$")] | None,
        Field(description='a URL without path, such as "https://voice.example.org"'),
    ] = None  # those of each request, which a proxy must then pass on; signatures cover them
    # A part of URLs, because most carriers send no headers of their own. Without it, they need an API key.
    media_streams_token: Annotated[
        Annotated[SecretStr, Field(min_length=16)] | None,
        Field(description="a text of at least 16 characters"),
    ] = None
    twilio_auth_token: Annotated[SecretStr | None, Field(description="the account's auth token")] = None
    plivo_auth_token: Annotated[SecretStr | None, Field(description="the account's auth token")] = None
    # Seconds of speech ready for each call. Enough for a busy moment of the engine, and little to throw away
    # when the caller interrupts.
    lead_s: Annotated[_FiniteFloat, Field(ge=0.1, le=10, description="seconds from 0.1 to 10")] = 0.6
    # Groups of calls that send one after the other within 20 ms. With 4, 100 calls send in groups of 25 every
    # 5 ms: no burst of packets, and few wake-ups.
    clock_phases: Annotated[
        Literal[1, 2, 4, 5, 10, 20],
        BeforeValidator(_parse_digits),
        Field(description="1, 2, 4, 5, 10 or 20"),
    ] = 4
    first_message_s: Annotated[_FiniteFloat, Field(gt=0, le=300, description="seconds, over 0 to 300")] = (
        5.0  # Asterisk sends a call's id within 1 ms of the connection
    )
    stalled_s: Annotated[_FiniteFloat, Field(gt=0, le=300, description="seconds, over 0 to 300")] = (
        10.0  # a conversation does not survive a longer interruption of the network
    )
    # None: unlimited, because phones without silence packets, or on hold, send nothing for minutes.
    silent_s: Annotated[
        Annotated[_FiniteFloat, Field(gt=0, le=3600)] | None, Field(description="seconds, over 0 to 3600")
    ] = None

    recordings: Annotated[Path | None, Field(description="a folder")] = None  # None: no call is recorded
    # All calls; else those that a program asks for.
    record_calls: Annotated[bool, Field(description="true or false")] = False

    # The process

    # None: one with more than one core, else none. A process plays 100 calls with a third of a core.
    media_processes: Annotated[
        Annotated[_Integer, Field(ge=0, le=64)] | None, Field(description="a number from 0 to 64")
    ] = None  # that play the speech of phone calls; 0: a thread of this process does
    # Above the 120 s for which LiveKit's clients keep a connection. A client that sends on a connection at
    # the moment of its end loses the request.
    keep_alive_s: Annotated[_Integer, Field(ge=1, le=3_600, description="seconds from 1 to 3600")] = 150
    request_s: Annotated[_FiniteFloat, Field(gt=0, le=300, description="seconds, over 0 to 300")] = (
        DEFAULT_REQUEST_S  # from the connection to the end of a request's headers
    )
    drain_s: Annotated[_FiniteFloat, Field(ge=0, le=600, description="seconds from 0 to 600")] = (
        10.0  # a long sentence; supervisors kill a process after 30 s or more
    )
    log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR"],
        Field(description="DEBUG (shows what is said), INFO, WARNING or ERROR"),
    ] = "INFO"
    log_file: Annotated[Path | None, Field(description="a file; it is rotated at 10 MB")] = (
        None  # standard error, which supervisors keep
    )

    @property
    def reading_style(self) -> ReadingStyle:
        """The conventions of the locale, unless a setting of its own says otherwise."""
        style = READING_STYLES[self.locale]
        return ReadingStyle(
            day_first=style.day_first if self.date_order is None else self.date_order == "day-first",
            zero=self.zero or style.zero,
            digit_pairs=self.digit_pairs,
        )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)
