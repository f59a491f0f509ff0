"""Settings that had other names, or are no longer settings: what an operator sets instead.

A name without a dot is from before the configuration had tables; of a bundle, ``bundle.KEY`` is also
``bundles.NAME.KEY``. CHANGELOG.md has the same table.
"""

from collections.abc import Mapping
from typing import Final

RENAMED: Final[Mapping[str, str]] = {
    "host": "http.host",
    "http_port": "http.port",
    "public_url": "http.public_url",
    "allowed_origins": "http.allowed_origins",
    "trusted_proxies": "http.trusted_proxies",
    "listen_beyond_loopback": "access.listen_beyond_loopback",
    "keys_file": "access.keys_file",
    "without_keys": 'access.without_key = "everything"',
    "public_lists": 'access.without_key = "lists"',
    "drain_s": "server.drain_s",
    "log_level": "server.log_level",
    "redis_url": "cluster.redis_url",
    "bundle": "bundle.folder",
    "voice": "bundle.voice",
    "device": "bundle.device",
    "precision": "bundle.precision",
    "executor": "engine.executor",
    "ray_address": 'engine.executor = "ray:ADDRESS"',
    "max_streams": "engine.max_streams",
    "voice_store": "voices.store",
    "voice_aliases": "voices.aliases",
    "locale": "reading.locale",
    "date_order": "reading.locale",
    "zero": "reading.locale",
    "other_language": "reading.other_language",
    "lexicon": "lexicons.default",
    "max_input_characters": "apis.max_input_characters",
    "reference_hosts": "apis.reference_hosts",
    "exchange_folder": "apis.exchange_folder",
    "grpc_port": "apis.ports.grpc",
    "max_calls": "calls.max_calls",
    "caller_speech": "calls.caller_speech",
    "agent": "agents.default",
    "script_loops": 'agents.default = "loop:FILE"',
    "recordings": "recordings.folder",
    "record_calls": "recordings.all_calls",
    "audiosocket_host": "audiosocket.host",
    "audiosocket_port": "audiosocket.port",
    "audiosocket_rate": "audiosocket.rate",
    "expected_calls_only": "audiosocket.expected_calls_only",
    "rtp_host": "rtp.host",
    "rtp_ports": "rtp.ports",
    "ari_url": "ari.url",
    "ari_user": 'ari.url = "http://USER@HOST:PORT/ari"',
    "ari_password": "ari.password",
    "ari_app": "ari.app",
    "ari_codec": "ari.codec",
    "ari_media": "ari.media",
    "ari_websocket_client": 'ari.media = "websocket:CONNECTION"',
    "media_streams_token": "media_streams.tokens",
    "twilio_auth_token": "media_streams.tokens.twilio",
    "plivo_auth_token": "media_streams.tokens.plivo",
    "ice_servers": "browser.ice_servers",
    "webrtc_ports": "rtp.ports",
    "llm_base_url": "llm.base_url",
    "llm_model": "llm.model",
    "llm_api_key": "llm.api_key",
    "bundle.canary_of": "bundle.canaries",
    "bundle.share": "bundle.canaries",
    "apis.grpc_port": "apis.ports.grpc",
    "apis.wyoming_port": "apis.ports.wyoming",
    "sip.enabled": "sip.port = 5060",
    "sip.trunk": "sip.trunks.NAME",
    "media_streams.token": "media_streams.tokens",
    "media_streams.auth_tokens": "media_streams.tokens",
    "browser.ports": "rtp.ports",
    "warm_phrases": "kept_speech.phrases",
}
_VERSION = "a bundle whose files have changed is loaded again from a folder of another name"
_PROCESS = "CosyVoice renders in a process of its own"
_SPEAKERS = "recordings are enrolled from the folder `speakers` in `voices.store`"
_MODEL_ALIASES = "`voices.aliases` has other names of voices, and any model but a bundle's is the loaded one"
_STRICT_MODELS = "any model is the loaded one, because clients send the models of other services"
_SPEED = "the voice has its own speed; programs on a call set another"
_SILENT = "a phone call ends of which nothing arrives for an hour, or for 120 s over RTP without ARI"
_MEDIA_PROCESSES = "a process plays up to 250 phone calls; on a single core, a thread does"
_GREETING = "`agents.default` answers browsers in its own words"
REMOVED: Final[Mapping[str, str]] = {
    "script_tokens_per_s": "a script is written at 40 tokens a second",
    "script_pause_s": "0.7 s are between two utterances of a script",
    "digit_pairs": "digits in codes are read one by one",
    "voice_list": "a request has `?legacy=true` for a list of names",
    "lead_s": "0.6 s of speech are kept ready for each call",
    "clock_phases": "calls send in 4 groups, one after the other within 20 ms",
    "first_message_s": "a call has 5 s to say which it is",
    "stalled_s": "a peer that accepts no audio for 10 s is disconnected",
    "request_s": "a request has 20 s for its headers",
    "keep_alive_s": "an idle HTTP connection is kept for 150 s",
    "max_unidentified": "each listener has 500 connections whose peers have not said who they are",
    "log_file": "the log goes to standard error, which supervisors keep",
    "bundle_version": _VERSION,
    "bundle.version": _VERSION,
    "engine_process": _PROCESS,
    "engine.process": _PROCESS,
    "engine.kept_speech_mb": "32 MB of rendered speech are kept, but for keys with `--no-keep-speech`",
    "speakers": _SPEAKERS,
    "voices.speakers": _SPEAKERS,
    "reading.directions": "directions in plain text are followed",
    "model_aliases": _MODEL_ALIASES,
    "apis.model_aliases": _MODEL_ALIASES,
    "strict_models": _STRICT_MODELS,
    "apis.strict_models": _STRICT_MODELS,
    "speed": _SPEED,
    "calls.speed": _SPEED,
    "silent_s": _SILENT,
    "calls.silent_s": _SILENT,
    "media_processes": _MEDIA_PROCESSES,
    "calls.media_processes": _MEDIA_PROCESSES,
    "sip.registrar": "every user of `sip.users` may register",
    "ari.orphans": "callers whose gateway died go on in the dial plan, which may hand them over again",
    "greeting": _GREETING,
    "browser.greeting": _GREETING,
    "ari_password_file": "`--ari-password-file` and the variable VIVAVOCE_ARI_PASSWORD are still there",
}


_FORMER: Final = {name.replace(".", "_"): name for name in (*RENAMED, *REMOVED)}


def describe_former(name: str, *, as_variable: str = "") -> str:
    """What to set in place of a former setting, as a sentence; "" for any other name.

    as_variable: the prefix of variables, whose names have underscores for dots, and may go on with a key of
    the setting's table.
    """
    former = _FORMER.get(name.replace(".", "_"))
    if former is None and as_variable:
        former = next(
            (full for flat, full in _FORMER.items() if "." in full and name.startswith(f"{flat}_")), None
        )
    if former is None:
        return ""
    if former in REMOVED:
        return f"no longer a setting: {REMOVED[former]}. CHANGELOG.md lists what has changed."
    key, _, value = RENAMED[former].partition(" = ")
    if as_variable:
        key = as_variable + key.replace(".", "_").upper()
    new = f"{key} = {value}" if value else key
    return f"it is now {new}; CHANGELOG.md lists the new names, which an upgrade needs."
