"""Names of the Realtime API's beta, for clients that ask for it: ``OpenAI-Beta: realtime=v1``.

client   session.update {voice, modalities, output_audio_format}  ->  {output_modalities, audio.output}
server   response.output_audio.delta  ->  response.audio.delta
         conversation.item.added      ->  conversation.item.created
         {"audio": {"output": ...}}   ->  {voice, output_audio_format}

Source: openai 3.57.0 (types/beta/realtime, types/realtime).
"""

from typing import Any, Final

_FORMATS: Final = {"pcm16": "audio/pcm", "g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}
_FORMAT_NAMES: Final = {value: name for name, value in _FORMATS.items()}
_EVENT_TYPES: Final = {
    "conversation.item.added": "conversation.item.created",
    "response.output_audio.delta": "response.audio.delta",
    "response.output_audio.done": "response.audio.done",
    "response.output_audio_transcript.delta": "response.audio_transcript.delta",
    "response.output_audio_transcript.done": "response.audio_transcript.done",
    "response.output_text.delta": "response.text.delta",
    "response.output_text.done": "response.text.done",
}
_CONTENT_TYPES: Final = {"output_audio": "audio", "output_text": "text"}
_ABSENT_TYPES: Final = ("conversation.item.done",)  # which the beta does not have


def from_beta(event: dict[str, Any]) -> dict[str, Any]:
    """Return a client's event with today's names."""
    named = {"session.update": "session", "response.create": "response"}.get(str(event.get("type")))
    settings = event.get(named) if named is not None else None
    return {**event, str(named): _settings_from_beta(settings)} if isinstance(settings, dict) else event


def _settings_from_beta(settings: dict[str, Any]) -> dict[str, Any]:
    format_name = settings.get("output_audio_format")
    output = {
        "voice": settings.get("voice"),
        "speed": settings.get("speed"),
        # An unknown name stays, so that the error has it.
        "format": None if format_name is None else {"type": _FORMATS.get(str(format_name), format_name)},
    }
    return {
        **settings,
        "output_modalities": settings.get("modalities"),
        "audio": {"output": {name: value for name, value in output.items() if value is not None}},
    }


def to_beta(event: dict[str, Any]) -> dict[str, Any] | None:
    """Return a server's event with the beta's names, None for one that the beta does not have."""
    if event["type"] in _ABSENT_TYPES:
        return None
    renamed = {**event, "type": _EVENT_TYPES.get(event["type"], event["type"])}
    for name, convert in (("session", _settings_to_beta), ("response", _response_to_beta), ("item", _item)):
        if name in renamed:
            renamed[name] = convert(renamed[name])
    return renamed


def _settings_to_beta(settings: dict[str, Any]) -> dict[str, Any]:
    output = settings["audio"]["output"]
    modalities = settings["output_modalities"]
    kept = {name: value for name, value in settings.items() if name not in ("audio", "output_modalities")}
    return {
        **kept,
        "modalities": ["audio", "text"] if "audio" in modalities else modalities,
        "voice": output["voice"],
        "output_audio_format": _FORMAT_NAMES[output["format"]["type"]],
    }


def _response_to_beta(response: dict[str, Any]) -> dict[str, Any]:
    return {**_settings_to_beta(response), "output": [_item(item) for item in response["output"]]}


def _item(item: dict[str, Any]) -> dict[str, Any]:
    if "content" not in item:
        return item
    content = [{**part, "type": _CONTENT_TYPES.get(part["type"], part["type"])} for part in item["content"]]
    return {**item, "content": content}
