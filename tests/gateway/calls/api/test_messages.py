"""Messages between a call and its peers: parsing, and the message for each event."""

import json

import pytest

from vivavoce.adapters.playback.playout import PlayoutStats
from vivavoce.gateway.calls.api.descriptions import basic_message, describe_event
from vivavoce.gateway.calls.api.messages import (
    MAX_TEXT_CHARACTERS,
    BadCallMessage,
    parse_client_message,
)
from vivavoce.gateway.calls.events import (
    CallerSilent,
    CallerSpeaking,
    CallStateEvent,
    HungUp,
    KeyPressed,
    MarkHeard,
    PlayoutReport,
    SpeechDiscarded,
    SpeechFinished,
    SpeechStarted,
    TextWritten,
    WordHeard,
)
from vivavoce.tts_engine.chunk import Mark, Word

HELLO = Word("Hello", 0.0, 0.4, 0, 5)
EVENTS: list[tuple[CallStateEvent, str]] = [
    (TextWritten(0, "Hi."), '{"type": "utterance", "turn": 0, "text": "Hi."}'),
    (
        SpeechStarted(1, 2, 80.04),
        '{"type": "speech_started", "utterance": 1, "turn": 2, "after_text_ms": 80.0}',
    ),
    (
        WordHeard(1, HELLO),
        '{"type": "word", "utterance": 1, "text": "Hello", "text_start": 0, "text_stop": 5, "start_s": 0.0, '
        '"stop_s": 0.4}',
    ),
    (MarkHeard(1, Mark("here", 0.41)), '{"type": "mark", "utterance": 1, "name": "here", "at_s": 0.41}'),
    (
        SpeechFinished(1, "cut short", "H"),
        '{"type": "speech_finished", "utterance": 1, "outcome": "cut short"}',
    ),
    (
        SpeechDiscarded(1, 250.04, "Hello", (HELLO,), ("here",), 0.40004),
        '{"type": "discarded", "utterance": 1, "cut_ms": 250.0, "heard": "Hello", "marks": ["here"], '
        '"heard_s": 0.4}',
    ),
    (CallerSpeaking(), '{"type": "caller_speaking"}'),
    (CallerSilent(), '{"type": "caller_silent"}'),
    (KeyPressed("#"), '{"type": "dtmf", "digit": "#"}'),
    (
        PlayoutReport(600, PlayoutStats(packets=50, late_packets=1, skipped_packets=2, underruns=3)),
        '{"type": "stats", "lead_ms": 600, "packets": 50, "late_packets": 1, "skipped_packets": 2, '
        '"underruns": 3}',
    ),
    (HungUp(), '{"type": "hung_up"}'),
]


@pytest.mark.parametrize(("event", "text"), EVENTS, ids=lambda value: type(value).__name__)
def test_an_event_becomes_its_message(event: CallStateEvent, text: str) -> None:
    message = describe_event(event)
    assert message.fields() == json.loads(text)
    assert type(message).model_validate_json(text) == message


def test_without_all_events_text_and_counters_are_left_out() -> None:
    basic = [basic_message(describe_event(event)) for event, _ in EVENTS]
    sent = [message.fields() for message in basic if message is not None]
    assert [message["type"] for message in sent] == [
        "speech_started", "word", "mark", "speech_finished", "discarded", "caller_speaking", "caller_silent",
        "dtmf", "hung_up",
    ]  # fmt: skip
    assert sent[0] == {"type": "speech_started", "utterance": 1}


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("no json", "JSON"),
        ("[]", "message"),
        ('{"type": "sing"}', "type"),
        ('{"type": "text"}', "text"),
        ('{"type": "text", "text": 5}', "text"),
        ('{"type": "text", "text": "a", "loud": true}', "loud"),
        ('{"type": "speech", "speed": 9}', "speed"),
        ('{"type": "on_speech", "action": "shout"}', "action"),
        ('{"type": "ask", "text": ""}', "text"),
        ('{"type": "dtmf", "digit": "11"}', "digit"),
        (json.dumps({"type": "text", "text": "x" * (MAX_TEXT_CHARACTERS + 1)}), "text"),
        ("[" * (8 * MAX_TEXT_CHARACTERS + 1), "characters; at most"),
    ],
)
def test_a_bad_message_is_refused_with_the_name_of_the_field(message: str, field: str) -> None:
    with pytest.raises(BadCallMessage, match=field):
        parse_client_message(message)
