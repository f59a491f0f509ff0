"""The ``listen`` verb of jambonz with streamed bidirectional audio, which FreeSWITCH's mod_audio_fork plays.

The module plays nothing of a message until 80 ms have come (160 ms the first time): a rest that is shorter
waits for the next message. A mark is set in front of the audio that comes next, or reported when nothing is
left to play; the 31st that waits is dropped. ``killAudio`` drops what is being played, but not the rest that
waits, and returns the marks as "cleared".

Source: docs.jambonz.org, verb listen; jambonz/freeswitch-modules@30f2189, mod_audio_fork/lws_glue.cpp.
"""

import json
from collections.abc import Iterable
from typing import Final

from shared.calls.peers.carrier import RefusedMessage, SimulatedCarrier, media_stream_path
from shared.calls.peers.peer import Message, PeerStep
from vivavoce.adapters.media_streams.stream_format import linear

_FIRST_BUFFER_MS: Final = 160
_BUFFER_MS: Final = 80
_MAX_MARKS: Final = 30


class SimulatedJambonz(SimulatedCarrier):
    """One listen verb, whose two rates are the same."""

    subprotocols: tuple[str, ...] = ("audio.jambonz.org",)

    def __init__(
        self, call_id: str, sample_rate: int = 8_000, *, token: str = "", carrier: str = "jambonz"
    ) -> None:
        super().__init__(call_id, media_stream_path(carrier, token), linear(sample_rate))
        self._waiting: list[bytes | str] = []  # audio and marks, until there is enough to play
        self._min_bytes = self._audio.bytes_per_ms * _FIRST_BUFFER_MS
        self._new_marks: list[str] = []  # to be set in front of the next audio
        self._set_marks = 0  # that wait or are queued

    def start(self) -> list[Message]:
        """Return the attributes of the call."""
        attributes = {
            "callSid": self.call_id,
            "direction": "inbound",
            "from": "15550001",
            "to": "15550002",
            "callId": "4ebb574f-2772-123d-6a91-000000000000",
            "callerName": "Ann",
            "callStatus": "in-progress",
            "sampleRate": self.sample_rate,
            "mixType": "mono",
        }
        return [json.dumps(attributes)]

    def press(self, digit: str) -> list[Message]:
        """Return ``dtmf``, which is sent with ``passDtmf``."""
        return [json.dumps({"event": "dtmf", "dtmf": digit, "duration": "1600"})]

    def step(self) -> PeerStep:
        """Play one packet, and send one of the caller."""
        is_dry = not self.queue.packets
        step = super().step()
        if not (is_dry and self._new_marks):
            return step
        return PeerStep((*step.messages, _mark(self._new_marks.pop(0), "playout")), step.pcm)

    def _receive(self, message: Message) -> Iterable[Message]:
        if isinstance(message, bytes):
            self._receive_audio(message)
            return []
        fields = json.loads(message)
        match fields["type"]:
            case "mark":
                if self._set_marks + len(self._new_marks) < _MAX_MARKS:
                    self._new_marks.append(fields["data"]["name"])
            case "killAudio":
                return [_mark(name, "cleared") for name in self._kill()]
            case "disconnect":
                self.has_hung_up = True
            case other:
                raise RefusedMessage(f"got the type {other}")
        return []

    def _receive_audio(self, audio: bytes) -> None:
        self._waiting += [*self._new_marks, audio]
        self._set_marks += len(self._new_marks)
        self._new_marks.clear()
        if sum(len(one) for one in self._waiting if isinstance(one, bytes)) < self._min_bytes:
            return
        self._min_bytes = self._audio.bytes_per_ms * _BUFFER_MS
        for one in self._waiting:
            if isinstance(one, bytes):
                self._queue_audio(one)
            else:
                self.queue.add_mark(one)
        self._waiting.clear()

    def _kill(self) -> list[str]:
        waiting = [one for one in self._waiting if isinstance(one, str)]
        marks = [*self._clear(), *waiting, *self._new_marks]
        self._waiting = [one for one in self._waiting if isinstance(one, bytes)]
        self._new_marks.clear()
        self._set_marks = 0
        return marks

    def _caller_messages(self, packet: bytes) -> Iterable[Message]:
        return [packet]

    def _played(self, name: str) -> Message:
        self._set_marks -= 1
        return _mark(name, "playout")


def _mark(name: str, event: str) -> Message:
    return json.dumps({"type": "mark", "data": {"name": name, "event": event}})
