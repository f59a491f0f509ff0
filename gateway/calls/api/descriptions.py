"""Calls, voices, events and errors as messages to the peers of a call."""

from typing import Any, assert_never

from ....adapters.answerer import AnswerDetected
from ....tts_engine.errors import Overloaded, VivavoceError
from ...access.errors import RateLimited
from ...voice_registry import KeyVoices
from ..call_options import Caller
from ..events import (
    CallerSilent,
    CallerSpeaking,
    CallStateEvent,
    HoldChanged,
    HungUp,
    KeyPressed,
    MarkHeard,
    OutgoingStateChanged,
    PlayoutReport,
    RecordingEnded,
    SpeechDiscarded,
    SpeechFinished,
    SpeechStarted,
    TextWritten,
    WordHeard,
)
from ..outgoing.outgoing_calls import OutgoingCall
from ..registry import ActiveCall
from ..utterance_tracker import UtteranceOutcome
from .messages import (
    AnswererMessage,
    CallDescription,
    CallerDescription,
    CallErrorMessage,
    CallerSilentMessage,
    CallerSpeakingMessage,
    CallStatsMessage,
    DiscardedMessage,
    HoldMessage,
    HungUpMessage,
    KeyPressedMessage,
    MarkMessage,
    OutgoingDescription,
    OutgoingStateMessage,
    RecordingMessage,
    ServerMessage,
    SpeechFinishedMessage,
    SpeechStartedMessage,
    UtteranceTextMessage,
    VoiceDescription,
    WordMessage,
)


def describe_error(error: VivavoceError) -> CallErrorMessage:
    """Return the message for an error, with the time to wait if the error has one."""
    if isinstance(error, RateLimited | Overloaded):
        retry_after_s = round(error.retry_after_s, 1)
        return CallErrorMessage(type="error", message=str(error), retry_after_s=retry_after_s)
    return CallErrorMessage(type="error", message=str(error))


def describe_voices(voices: KeyVoices) -> list[VoiceDescription]:
    """Return the voices that a key may name."""
    return [
        VoiceDescription(id=voice.id, name=voice.name, language=voice.language, description=voice.description)
        for voice in voices.usable_voices()
    ]


def _describe_caller(caller: Caller) -> CallerDescription:
    return CallerDescription(
        number=caller.number, name=caller.name, called=caller.called, variables=dict(caller.variables)
    )


def describe_outgoing(call: OutgoingCall) -> OutgoingDescription:
    """Return the description of a call that the gateway makes."""
    return OutgoingDescription(
        call=call.call_id,
        kind=call.kind,
        caller=_describe_caller(call.caller),
        placed_at=round(call.placed_at, 3),
        state=call.state,
        sip=call.sip,
        answered_by=call.answered_by,
    )


def describe_discarded(cut: SpeechDiscarded) -> dict[str, Any]:
    """Return the answer to a discard over HTTP."""
    return {
        "cut_ms": round(cut.cut_ms, 1),
        "heard": cut.heard,
        "words": [word.text for word in cut.words],
        "marks": [*cut.marks],
        "heard_s": round(cut.heard_s, 3),
    }


def describe_call(active_call: ActiveCall) -> CallDescription:
    """Return the description of a call that is up."""
    return CallDescription(
        call=active_call.call.call_id,
        kind=active_call.kind,
        peer=active_call.peer,
        caller=_describe_caller(active_call.call.caller),
        opened_at=round(active_call.opened_at, 3),
        held=active_call.attached,
        on_hold=active_call.call.on_hold,
        answered_by=active_call.call.answered_by,
        sample_rate=active_call.call.media.sample_rate,
    )


def describe_event(event: CallStateEvent) -> ServerMessage:
    """Return the message for an event, with every field."""
    match event:
        case TextWritten(turn, text):
            return UtteranceTextMessage(type="utterance", turn=turn, text=text)
        case SpeechStarted() | WordHeard() | MarkHeard() | SpeechFinished() | SpeechDiscarded():
            return _describe_speech(event)
        case CallerSpeaking():
            return CallerSpeakingMessage(type="caller_speaking")
        case CallerSilent():
            return CallerSilentMessage(type="caller_silent")
        case KeyPressed(digit):
            return KeyPressedMessage(type="dtmf", digit=digit)
        case HoldChanged(on_hold):
            return HoldMessage(type="hold", on=on_hold)
        case AnswerDetected(answerer, at_s):
            return AnswererMessage(type="answered_by", by=answerer, at_s=at_s)
        case OutgoingStateChanged(state, sip):
            return OutgoingStateMessage(type="call_state", state=state, sip=sip)
        case PlayoutReport(lead_ms, stats):
            return CallStatsMessage(
                type="stats",
                lead_ms=lead_ms,
                packets=stats.packets,
                late_packets=stats.late_packets,
                skipped_packets=stats.skipped_packets,
                underruns=stats.underruns,
            )
        case RecordingEnded(error):
            return RecordingMessage(type="recording", on=False, file="", error=error)
        case HungUp():
            return HungUpMessage(type="hung_up")
        case _:
            assert_never(event)


def _describe_speech(
    event: SpeechStarted | WordHeard | MarkHeard | SpeechFinished | SpeechDiscarded,
) -> ServerMessage:
    match event:
        case SpeechStarted(utterance, turn, after_text_ms):
            return SpeechStartedMessage(
                type="speech_started", utterance=utterance, turn=turn, after_text_ms=round(after_text_ms, 1)
            )
        case WordHeard(utterance, word):
            return WordMessage(
                type="word",
                utterance=utterance,
                text=word.text,
                text_start=word.text_start,
                text_stop=word.text_stop,
                start_s=round(word.start_s, 4),
                stop_s=round(word.stop_s, 4),
            )
        case MarkHeard(utterance, mark):
            return MarkMessage(type="mark", utterance=utterance, name=mark.name, at_s=round(mark.at_s, 4))
        case SpeechFinished(utterance, outcome):
            return SpeechFinishedMessage(
                type="speech_finished", utterance=utterance, outcome=UtteranceOutcome(outcome)
            )
        case SpeechDiscarded(utterance, cut_ms, heard, _, marks, heard_s):
            return DiscardedMessage(
                type="discarded",
                utterance=utterance,
                cut_ms=round(cut_ms, 1),
                heard=heard,
                marks=list(marks),
                heard_s=round(heard_s, 3),
            )
        case _:
            assert_never(event)


def basic_message(message: ServerMessage) -> ServerMessage | None:
    """Return the message as a peer without all events gets it; None if it does not."""
    match message:
        case UtteranceTextMessage() | CallStatsMessage():
            return None
        case SpeechStartedMessage(utterance=utterance):
            return SpeechStartedMessage(type="speech_started", utterance=utterance)
        case _:
            return message
