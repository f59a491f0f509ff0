"""A peer attached to a call: executes its messages, and sends it the call's events.

The peer is a program on a WebSocket (``program_socket``) or the page of a browser call on its data channel
(``browser.leg``); both use the messages of ``messages``. An attachment is not exclusive by itself: the
registry lets one program at a time attach to a call, and the page of a browser call is attached besides.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, assert_never

from ....tts_engine.errors import UnknownVoice, VivavoceError
from ...background_tasks import cancel_and_wait
from ...voice_registry import KeyVoices
from ..call_options import CallSpeechOptions
from ..events import (
    CallerAudio,
    CallEvent,
    CallStateEvent,
    HungUp,
    SpeechDiscarded,
    SpeechFinished,
    SpeechStarted,
)
from ..registry import ActiveCall
from ..text_feed import TextCommand
from .descriptions import basic_message, describe_call, describe_error, describe_event, describe_voices
from .key_calls import KeyCalls
from .messages import (
    AskMessage,
    AudioFormatMessage,
    BadCallMessage,
    CallerSpeechActionMessage,
    CallStartedMessage,
    ClientMessage,
    CommandMessage,
    HangUpMessage,
    KeyMessage,
    PlayMessage,
    RecordingMessage,
    RecordMessage,
    SendKeysMessage,
    ServerMessage,
    SpeechMessage,
    TextMessage,
    TransferMessage,
)
from .utterance_queue import UtteranceQueue


class ReplyWriter(Protocol):
    """Answers the questions of one peer, as a language model does."""

    def answer(self, question: str) -> AsyncGenerator[str, None]:
        """Yield the answer as it is written; raises VivavoceError while it is iterated over."""

    def add_heard_text(self, text: str) -> None:
        """Take what the caller heard of an utterance that the peer did not write itself."""


@dataclass(frozen=True, slots=True)
class AttachmentOptions:
    """How a peer is served."""

    speech: CallSpeechOptions  # until it sends ``speech``
    hang_up_reason: str  # logged when the peer ends the call
    greeting: str = ""  # spoken first; "": nothing
    all_events: bool = False  # also ``utterance``, ``stats`` and every field of ``speech_started``
    takes_over: bool = False  # text of the peer ends an agent's script


class CallAttachment:
    """One peer of a call, from ``open`` to ``aclose``. All methods belong to the event loop's thread.

    Args:
        send: sends a message to the peer; must not block.
        voices: that the peer may name.
        calls: of the peer's key, which is asked at each message, and charged.
        send_audio: sends s16le audio of the caller, after its format; None if the peer does not want it.
        answerer: answers ``ask``; without one it is an error.
    """

    def __init__(
        self,
        active_call: ActiveCall,
        options: AttachmentOptions,
        *,
        send: Callable[[ServerMessage], None],
        voices: KeyVoices,
        calls: KeyCalls,
        send_audio: Callable[[bytes], None] | None = None,
        answerer: ReplyWriter | None = None,
    ) -> None:
        self._active_call = active_call
        self._call = active_call.call
        self._options = options
        self._send = send
        self._send_audio = send_audio
        self._audio_sample_rate: int | None = None  # that was sent
        self._voices = voices
        self._calls = calls
        self._answerer = answerer
        self._utterances = UtteranceQueue(
            self._call.speech,
            options.speech,
            charge=calls.grant.charge_characters,
            on_failed=self._on_failed,
            on_error=self._on_error,
        )
        self._dictated: set[int] = set()  # utterances being heard that the peer wrote itself
        self._tasks: set[asyncio.Task[None]] = set()  # transfers, keys being sent
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def open(self) -> None:
        """Send ``started``, then every event of the call from now on; speak the greeting."""
        self._send(self._describe_start())
        self._call.events.add_listener(self._on_event, wants_audio=self._send_audio is not None)
        if self._options.greeting:
            self._utterances.say(self._options.greeting)

    async def wait_over(self) -> None:
        """Wait until the call is over; raises what a task of the attachment raised before."""
        await self._over

    async def run(self) -> None:
        """Wait as ``wait_over`` does, and close the attachment."""
        async with aclosing(self):
            await self.wait_over()

    async def aclose(self) -> None:
        """Send no more events, stop speaking what the peer wrote, and wait until every task has ended.

        A transfer that is under way is given up, if the call is still up.
        """
        self._call.events.remove_listener(self._on_event)
        await cancel_and_wait(*self._tasks)
        await self._utterances.aclose()

    def execute_or_report(self, message: ClientMessage) -> None:
        """Execute a message; the peer gets an ``error`` if that fails."""
        try:
            self._calls.grant.require_current()
            self._execute(message)
        except VivavoceError as error:
            self._send(describe_error(error))

    def _execute(self, message: ClientMessage) -> None:
        match message:
            case TextMessage(text=text):
                self._take_over()
                self._utterances.push(text)
            case PlayMessage(file=file, marks=marks):
                self._take_over()
                self._utterances.play(self._call.sounds.find(file, marks))
            case CommandMessage():
                self._execute_command(message)
            case HangUpMessage(result=result, after_speech=after_speech):
                self._call.end.set_result(result)
                if after_speech:
                    self._start(self._hang_up_when_heard())
                else:
                    self._call.end.hang_up(self._options.hang_up_reason)
            case TransferMessage():
                if (transferring := self._calls.transfer(self._call, message)) is not None:
                    self._start(transferring)
            case RecordMessage(on=on):
                change_recording = self._calls.record if on else self._calls.stop_recording
                opened = change_recording(self._active_call)
                opened.add_done_callback(partial(self._on_recording, on))
            case SpeechMessage(voice=voice, speed=speed):
                voice = self._voices.resolve(voice)
                self._utterances.speech = replace(self._utterances.speech, voice=voice, speed=speed)
            case CallerSpeechActionMessage(action=action):
                self._call.listening.caller_speech_action = action
            case AskMessage(text=text):
                self._ask(text)
            case SendKeysMessage(digits=digits):
                self._start(self._call.send_keys(digits))
            case KeyMessage(digit=digit):
                self._call.listening.press(digit)
            case _:
                assert_never(message)

    def _execute_command(self, message: CommandMessage) -> None:
        match message.type:
            case "flush":
                self._utterances.push(TextCommand.FLUSH)
            case "end":
                self._utterances.end()
            case "discard":
                self._discard()
            case _:
                assert_never(message.type)

    def _take_over(self) -> None:
        if self._options.takes_over:
            self._call.is_taken_over = True

    async def _hang_up_when_heard(self) -> None:
        reason = self._options.hang_up_reason
        await self._call.end.hang_up_when_heard(reason, self._utterances.wait_spoken())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_ended)

    def _on_task_ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, VivavoceError):
            self._send(describe_error(error))
        elif error is not None:
            self._on_error(error)

    def _on_recording(self, on: bool, opened: "asyncio.Future[str]") -> None:
        try:
            self._send(RecordingMessage(type="recording", on=on, file=opened.result()))
        except VivavoceError as error:
            self._send(describe_error(error))

    def _discard(self) -> None:
        self._utterances.discard().add_done_callback(self._on_discarded)

    def _on_discarded(self, answer: asyncio.Future[SpeechDiscarded]) -> None:
        if not answer.cancelled() and answer.result().utterance is None:
            # No event was emitted, but the peer waits for an answer: the page mutes its output until then.
            self._send(describe_event(answer.result()))

    def _ask(self, question: str) -> None:
        if self._answerer is None:
            raise BadCallMessage("ask: no language model is configured here; send text to have it spoken")
        self._discard()
        self._utterances.answer(self._answerer.answer(question))

    def _on_event(self, event: CallEvent) -> None:
        if isinstance(event, CallerAudio):
            if self._send_audio is not None:
                self._announce_audio(event.sample_rate)
                self._send_audio(event.pcm)
            return
        if self._answerer is not None:
            self._note_heard(event, self._answerer)
        full = describe_event(event)
        message = full if self._options.all_events else basic_message(full)
        if message is not None:
            self._send(message)
        if isinstance(event, HungUp) and not self._over.done():
            self._over.set_result(None)

    def _announce_audio(self, sample_rate: int) -> None:
        if sample_rate != self._audio_sample_rate:
            self._audio_sample_rate = sample_rate
            self._send(AudioFormatMessage(type="audio", sample_rate=sample_rate, encoding="pcm_s16le"))

    def _note_heard(self, event: CallStateEvent, answerer: ReplyWriter) -> None:
        match event:
            case SpeechStarted(utterance, turn) if self._utterances.wrote(turn):
                self._dictated.add(utterance)
            case SpeechFinished(utterance, _, heard):
                if utterance not in self._dictated:
                    answerer.add_heard_text(heard)
                self._dictated.discard(utterance)
            case SpeechDiscarded(utterance, _, heard):
                if utterance not in self._dictated:
                    answerer.add_heard_text(heard)
                self._dictated.clear()

    def _on_failed(self, error: VivavoceError) -> None:
        self._send(describe_error(error))

    def _on_error(self, error: BaseException) -> None:
        if not self._over.done():
            self._over.set_exception(error)

    def _describe_start(self) -> CallStartedMessage:
        speech = self._options.speech
        try:
            voice: str | None = self._voices.resolve(speech.voice)
        except UnknownVoice:  # it speaks here, but this key may not name it
            voice = None
        return CallStartedMessage(
            type="started",
            **describe_call(self._active_call).fields(),
            voices=describe_voices(self._voices),
            voice=voice,
            speed=speech.speed,
            answers=self._answerer is not None,
        )
