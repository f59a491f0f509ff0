"""OpenAI's Realtime WebSocket, ``/v1/realtime``: items and responses of text in, speech and transcript out.

    response.create  ->  RealtimeConversation.take_text  ->  the queue of transcripts  ->  speech
                         SpokenResponse, created      one after the other          its deltas and its end

The service refuses a response while another is under way. Here it is spoken after that, so that a client can
send sentence after sentence.
"""

import json
from base64 import b64encode
from collections import deque
from dataclasses import replace
from functools import partial
from typing import Any, Final, assert_never

from fastapi import WebSocket

from .....adapters.transcript_queue import Transcript, TranscriptQueueFull
from .....tts_engine.errors import VivavoceError
from .....tts_engine.stream_request import Delivery
from ....access.access_control import Grant
from ....voice_registry import VoiceRegistry
from ....web.openapi.operations import WebSocketOperation
from ...dialect import Dialect, OpenDialect
from ...kits.error_table import ErrorTable
from ...kits.openai.errors import OPENAI_ERRORS, InvalidRequestError, OpenAIError
from ...kits.openai.speech_settings import MAX_INSTRUCTION_CHARACTERS
from ...kits.request_fields import MAX_MESSAGE_BYTES, context_id_in, parse_json_object
from ...kits.socket_api import SocketHandlers, SpeechSocketApi
from ...kits.transcript_socket import SpokenTexts, TranscriptConnection
from ...shell.speech import EncodedChunk, SynthesisOptions
from ...shell.speech_server import OWN_MODEL, SpeechServer
from .beta_names import from_beta, to_beta
from .conversation import RealtimeConversation, new_id
from .handshake import RealtimeHandshake
from .models import (
    InputAudioAppendEvent,
    InputAudioClearEvent,
    InputAudioCommitEvent,
    ItemCreateEvent,
    ItemDeleteEvent,
    ItemRetrieveEvent,
    ItemTruncateEvent,
    RealtimeClientEvent,
    RealtimeResponseSettings,
    ResponseCancelEvent,
    ResponseCreateEvent,
    SessionUpdateEvent,
    parse_realtime_event,
)
from .server_events import (
    InputAudioClearedEvent,
    ItemDeletedEvent,
    ItemTruncatedEvent,
    RealtimeAudioSettings,
    RealtimeConnectionSettings,
    RealtimeError,
    RealtimeErrorEvent,
    RealtimeItemEvent,
    RealtimeServerEvent,
    RealtimeServerMessage,
    RealtimeSettingsEvent,
)
from .spoken_response import ResponseSettings, SpokenResponse

PATH: Final = "/v1/realtime"
REALTIME_OPERATION: Final = WebSocketOperation(
    PATH,
    "OpenAI's Realtime API, its speech side; audio is in base64.",
    RealtimeClientEvent,
    RealtimeServerMessage,
    example=({"type": "response.create", "response": {"instructions": "Hello, this is vivavoce."}},),
)
_API: Final = "realtime"  # in the log and the metrics
_ERRORS: Final = ErrorTable(
    {**OPENAI_ERRORS.entries, TranscriptQueueFull: OpenAIError(429, "too_much_text")},
    OPENAI_ERRORS.make_body,
    OPENAI_ERRORS.make_request_id,
)


class RealtimeSocketApi(SpeechSocketApi):
    """All Realtime sockets of a server. Belongs to its event loop."""

    def __init__(self, server: SpeechServer, voices: VoiceRegistry) -> None:
        super().__init__(server)
        self._voices = voices

    def handlers(self) -> SocketHandlers:
        return {PATH: self._serve}

    def options(self, settings: ResponseSettings, model: str | None, grant: Grant) -> SynthesisOptions:
        """Return how speech is made; raises UnknownVoice, BadRequest."""
        default = self.server.models.default_voice(model)
        instruction = settings.instructions
        return SynthesisOptions(
            voice=self._voices.resolve(settings.voice, grant, default),
            audio=settings.format.audio,
            speed=settings.speed,
            delivery=Delivery(
                instruction=instruction if len(instruction) <= MAX_INSTRUCTION_CHARACTERS else ""
            ),
        )

    async def _serve(self, socket: WebSocket) -> None:
        handshake = RealtimeHandshake.of(socket)
        make = partial(self._connection, handshake)
        await self.serve(make, _ERRORS.response, socket, subprotocol=handshake.subprotocol)

    def _connection(self, handshake: RealtimeHandshake, socket: WebSocket) -> "_RealtimeConnection":
        grant = self.server.authorize(handshake.headers)
        return _RealtimeConnection(self, handshake, socket, grant)


class _RealtimeConnection(TranscriptConnection):
    def __init__(
        self, api: RealtimeSocketApi, handshake: RealtimeHandshake, socket: WebSocket, grant: Grant
    ) -> None:
        options = api.options(ResponseSettings(), handshake.model, grant)
        request = _API, new_id("sess")
        super().__init__(socket, server=api.server, request=request, options=options, grant=grant)
        self.headers = handshake.headers
        self._handshake = handshake
        self._make_options = partial(api.options, model=handshake.model)
        self._settings = ResponseSettings(options.voice or "")
        self._conversation = RealtimeConversation()
        self._responses: deque[tuple[SpokenResponse, Transcript[SynthesisOptions]]] = deque()  # as the queue

    # Receiving

    async def on_open(self) -> None:
        await self._send(self._describe("session.created"))

    async def receive(self, data: str | bytes) -> None:
        values = parse_json_object(data, MAX_MESSAGE_BYTES, InvalidRequestError)
        await self._handle(parse_realtime_event(from_beta(values) if self._handshake.is_beta else values))

    async def _handle(self, event: RealtimeClientEvent) -> None:
        match event:
            case SessionUpdateEvent():
                await self._update(event)
            case ItemCreateEvent() | ItemRetrieveEvent() | ItemTruncateEvent() | ItemDeleteEvent():
                await self._handle_item(event)
            case ResponseCreateEvent(response=response):
                await self._create(response)
            case ResponseCancelEvent(response_id=response_id):
                self._cancel(response_id)
            case InputAudioAppendEvent():
                pass
            case InputAudioClearEvent():
                await self._send(InputAudioClearedEvent())
            case InputAudioCommitEvent():
                raise InvalidRequestError(
                    "the input audio buffer is empty: this server speaks, and does not listen",
                    code="input_audio_buffer_commit_empty",
                )
            case _:
                assert_never(event)

    async def _update(self, event: SessionUpdateEvent) -> None:
        settings = self._settings.updated(event.session)
        # The key may have been revoked since the handshake.
        self._make_options(replace(settings, instructions=""), grant=self.server.authorize(self.headers))
        self._settings = settings
        await self._send(self._describe("session.updated"))

    async def _handle_item(
        self, event: ItemCreateEvent | ItemRetrieveEvent | ItemTruncateEvent | ItemDeleteEvent
    ) -> None:
        match event:
            case ItemCreateEvent(item=item, previous_item_id=previous):
                before = self._conversation.add(item, previous)
                for kind in ("conversation.item.added", "conversation.item.done"):
                    await self._send(RealtimeItemEvent(type=kind, previous_item_id=before, item=item))
            case ItemRetrieveEvent(item_id=item_id):
                item = self._conversation.get(item_id, "retrieve").item
                await self._send(RealtimeItemEvent(type="conversation.item.retrieved", item=item))
            case ItemTruncateEvent(item_id=item_id, audio_end_ms=end_ms):
                heard = self._truncate(item_id, end_ms)
                await self._send(ItemTruncatedEvent(item_id=item_id, audio_end_ms=end_ms, transcript=heard))
            case ItemDeleteEvent(item_id=item_id):
                self._conversation.delete(item_id)
                await self._send(ItemDeletedEvent(item_id=item_id))
            case _:
                assert_never(event)

    def _truncate(self, item_id: str, audio_end_ms: int) -> str:
        """Cut an item to what was heard, and speak no more of it; raises InvalidRequestError."""
        entry = self._conversation.get(item_id, "truncate")
        heard = entry.truncate(audio_end_ms)
        for response, transcript in self._responses:
            if response.entry is entry:
                _drop(response, transcript)
        return heard

    # Responses

    async def _create(self, wanted: RealtimeResponseSettings) -> None:
        """Speak after the responses that there are; raises VivavoceError for what cannot be one."""
        manner = replace(self._settings, instructions="").updated(wanted)
        options = self._make_options(manner, grant=self.server.authorize(self.headers))
        text = self._conversation.take_text(wanted)
        if text == wanted.instructions:
            options = replace(options, delivery=Delivery())
        conversation = self._conversation if wanted.conversation == "auto" else None
        response = SpokenResponse(manner, conversation, len(text), wanted.metadata)
        await self._send(response.created)  # before speech of it can be
        try:
            if manner.modality == "text":
                self.server.authorize_request(self.headers)
                await self._send(*response.write(text))
                await self._send(*response.end())
            else:
                self._enqueue(response, text, options)
        except VivavoceError as error:
            response.error = _ERRORS.describe(error).detail
            await self._send(*response.end())

    def _enqueue(self, response: SpokenResponse, text: str, options: SynthesisOptions) -> None:
        self.queue.options = options
        self.push(text)
        self._responses.append((response, self.queue.transcripts[-1]))
        self.complete()

    def _cancel(self, response_id: str | None) -> None:
        """Drop a response, or all that there are; raises InvalidRequestError if there is none."""
        found = [one for one in self._responses if response_id in (None, one[0].id)]
        if not found:
            raise InvalidRequestError(
                "Cancellation failed: no active response found", code="response_cancel_not_active"
            )
        for response, transcript in found:
            _drop(response, transcript)

    # Speaking

    async def send_chunk(
        self,
        context: SpokenTexts,
        transcript: Transcript[SynthesisOptions],
        chunk: EncodedChunk,
        text: str,
    ) -> None:
        response, _ = self._responses[0]

        async def write(part: bytes) -> None:
            if not transcript.is_dropped:
                await self._send(response.audio_delta(b64encode(part).decode("ascii")))

        await self._send(*response.begin())
        if not transcript.is_dropped:
            await self._send(*response.transcript_of(chunk, text))
        if chunk.audio:
            await context.sender.send(chunk.audio, transcript.options.audio.bytes_per_second, write)

    async def on_failed(
        self, context: SpokenTexts, transcript: Transcript[SynthesisOptions], error: Exception
    ) -> None:
        self._responses[0][0].error = _ERRORS.describe(error).detail

    async def on_spoken(self, context: SpokenTexts, transcript: Transcript[SynthesisOptions]) -> None:
        response, _ = self._responses.popleft()
        await self._send(*response.end())

    # Sending

    def context_of(self, data: str | bytes) -> str | None:
        return context_id_in(data, "event_id")

    async def report(self, error: Exception, context_id: str | None) -> None:
        detail = _ERRORS.describe(error).detail
        await self._send(RealtimeErrorEvent(error=RealtimeError(**detail.model_dump(), event_id=context_id)))

    def _describe(self, kind: Any) -> RealtimeServerEvent:
        settings = RealtimeConnectionSettings(
            id=self.request_id,
            model=self._handshake.model or OWN_MODEL,
            output_modalities=[self._settings.modality],
            instructions=self._settings.instructions,
            audio=RealtimeAudioSettings(output=self._settings.output),
        )
        return RealtimeSettingsEvent(type=kind, session=settings)

    async def _send(self, *events: RealtimeServerEvent) -> None:
        for event in events:
            values = event.encode(new_id("event"))
            named = to_beta(values) if self._handshake.is_beta else values
            if named is not None:
                await self.send_text(json.dumps(named))


def _drop(response: SpokenResponse, transcript: Transcript[SynthesisOptions]) -> None:
    response.is_cancelled = True
    transcript.drop()


def _open(server: SpeechServer) -> OpenDialect:
    return OpenDialect.of(RealtimeSocketApi(server, server.voices))


REALTIME: Final = Dialect("realtime", _open, (REALTIME_OPERATION,), title="OpenAI Realtime")
