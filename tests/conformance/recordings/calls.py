"""Sessions of the calls API, over a phone whose call has a known id."""

import base64
import json
from typing import Any

from .sessions import ClientMessage, RecordedSession

_CALL = "6f1c0a52-3d0e-4f57-9c1b-0000000000{:02}"


def call_sessions() -> list[RecordedSession]:
    """Each session is on a call of its own."""
    sessions = [_socket(number, *messages) for number, messages in enumerate(_SOCKETS)]
    for method, path, body in _REQUESTS:
        call_id = _CALL.format(50 + len(sessions))
        sessions.append(_request(method, path.format(call_id), body, call_id))
    return sessions + [_request(method, path, body) for method, path, body in _WITHOUT_A_CALL]


def _socket(number: int, *messages: tuple[str, dict[str, Any] | str]) -> RecordedSession:
    call_id = _CALL.format(number)
    said = [
        ClientMessage(message if isinstance(message, str) else json.dumps(message), after_type=after)
        for after, message in messages
    ]
    return RecordedSession("WEBSOCKET", f"/v1/calls/{call_id}/socket", messages=said, on_call=call_id)


def _request(method: str, path: str, body: Any, on_call: str = "") -> RecordedSession:
    content = b"" if body is None else json.dumps(body).encode()
    headers = [["content-type", "application/json"]] if content else []
    return RecordedSession(method, path, headers, base64.b64encode(content).decode(), on_call=on_call)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


_END, _FLUSH, _DISCARD = {"type": "end"}, {"type": "flush"}, {"type": "discard"}
# Each message waits for an answer of a type; "" is sent at once.
_SOCKETS: tuple[tuple[tuple[str, dict[str, Any] | str], ...], ...] = (
    (("started", _text("Hel")), ("", _text("lo there.")), ("", _END)),
    (("started", _text("One.")), ("", _END), ("speech_finished", _text("Two.")), ("", _END)),
    (("started", _text("one")), ("", _FLUSH), ("word", _text(" two.")), ("", _END)),
    (("started", _DISCARD), ("discarded", _text("Back.")), ("", _END)),
    (("started", {"type": "speech", "voice": "tone-330", "speed": 2.0}), ("", _text("Two.")), ("", _END)),
    (("started", {"type": "speech", "voice": "nobody"}), ("error", _text("One.")), ("", _END)),
    (("started", _text('<speak>One <mark name="here"/>two.</speak>')), ("", _END)),
    (("started", _text("<speak>One <b>two.</speak>")), ("", _END)),
    (("started", {"type": "dtmf", "digit": "5"}), ("dtmf", {"type": "dtmf", "digit": "x"})),
    (("started", {"type": "on_speech", "action": "discard"}), ("", {"type": "on_speech", "action": "shout"})),
    (("started", {"type": "record"}),),
    (("started", {"type": "transfer", "to": "100"}),),
    (("started", {"type": "transfer", "to": "a b"}),),
    (("started", {"type": "ask", "text": "Who?"}),),
    (("started", "no JSON"), ("error", "[1]"), ("error", {"type": "sing"}), ("error", {"text": "One."})),
    (("started", _text("x" * 65_537)),),
    (("started", _text("Bye.")), ("", _END), ("speech_finished", {"type": "hang_up", "result": "done"})),
)
_REQUESTS: tuple[tuple[str, str, Any], ...] = (
    ("GET", "/v1/calls", None),
    ("GET", "/v1/calls/{}", None),
    ("POST", "/v1/calls/{}/speech", {"text": "One two."}),
    ("POST", "/v1/calls/{}/speech", {"text": ""}),
    ("POST", "/v1/calls/{}/speech", {"txt": "One."}),
    ("POST", "/v1/calls/{}/say", {"text": "One two."}),
    ("POST", "/v1/calls/{}/discard", None),
    ("POST", "/v1/calls/{}/hangup", None),
    ("DELETE", "/v1/calls/{}", None),
    ("DELETE", "/v1/calls/{}?result=done", None),
    ("POST", "/v1/calls/{}/transfer", {"to": "100"}),
    ("PUT", "/v1/calls/{}/recording", None),
    ("GET", "/v1/calls/{}/result", None),
)
_WITHOUT_A_CALL: tuple[tuple[str, str, Any], ...] = (
    ("GET", "/v1/calls", None),
    ("GET", "/v1/calls/none", None),
    ("DELETE", "/v1/calls/none", None),
    ("POST", "/v1/calls", {"to": "100"}),
    ("POST", "/v1/calls/expected", {"call": _CALL.format(90), "agent": "none"}),
    ("POST", "/v1/calls/expected", {"call": _CALL.format(91), "variables": {"name": "Anna"}}),
    ("POST", "/v1/calls/expected", {"call": "no id"}),
    ("POST", "/v1/calls/expected", {}),
    ("GET", "/v1/recordings", None),
    ("GET", "/v1/recordings/none", None),
)
