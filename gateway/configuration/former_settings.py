"""Settings that had other names, or are no longer settings: what an operator sets instead.

Before, the configuration had no tables. CHANGELOG.md has the same table.
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
    "bundle_version": "bundle.version",
    "device": "bundle.device",
    "precision": "bundle.precision",
    "executor": "engine.executor",
    "ray_address": 'engine.executor = "ray:ADDRESS"',
    "engine_process": "engine.process",
    "max_streams": "engine.max_streams",
    "voice_store": "voices.store",
    "speakers": "voices.speakers",
    "voice_aliases": "voices.aliases",
    "locale": "reading.locale",
    "date_order": "reading.locale",
    "zero": "reading.locale",
    "other_language": "reading.other_language",
    "lexicon": "lexicons.default",
    "max_input_characters": "apis.max_input_characters",
    "model_aliases": "apis.model_aliases",
    "strict_models": "apis.strict_models",
    "reference_hosts": "apis.reference_hosts",
    "exchange_folder": "apis.exchange_folder",
    "grpc_port": "apis.grpc_port",
    "max_calls": "calls.max_calls",
    "speed": "calls.speed",
    "caller_speech": "calls.caller_speech",
    "silent_s": "calls.silent_s",
    "media_processes": "calls.media_processes",
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
    "media_streams_token": "media_streams.token",
    "twilio_auth_token": "media_streams.auth_tokens.twilio",
    "plivo_auth_token": "media_streams.auth_tokens.plivo",
    "greeting": "browser.greeting",
    "ice_servers": "browser.ice_servers",
    "webrtc_ports": "browser.ports",
    "llm_base_url": "llm.base_url",
    "llm_model": "llm.model",
    "llm_api_key": "llm.api_key",
}
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
    "ari_password_file": "`--ari-password-file` and the variable VIVAVOCE_ARI_PASSWORD are still there",
}


def describe_former(name: str, *, as_variable: str = "") -> str:
    """What to set in place of a former setting, as a sentence; "" for any other name.

    as_variable: the prefix of variables, for their name besides.
    """
    if name in REMOVED:
        return f"no longer a setting: {REMOVED[name]}. CHANGELOG.md lists what has changed."
    if name not in RENAMED:
        return ""
    key, _, value = RENAMED[name].partition(" = ")
    if as_variable:
        key = as_variable + key.replace(".", "_").upper()
    new = f"{key} = {value}" if value else key
    return f"it is now {new}; CHANGELOG.md lists the new names, which an upgrade needs."
