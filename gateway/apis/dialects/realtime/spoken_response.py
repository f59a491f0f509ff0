"""One response of a Realtime connection: its settings, and the events from its beginning to its end.

response.created
    response.output_item.added, conversation.item.added, response.content_part.added
        response.output_audio_transcript.delta, response.output_audio.delta ...
    response.output_audio.done, response.output_audio_transcript.done, response.content_part.done
    response.output_item.done, conversation.item.done
response.done

The events in the middle are only of a response that has begun to speak. No I/O.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from .....tts_engine.chunk import SAMPLE_RATE
from ...kits.openai.errors import OpenAIErrorDetail
from ...shell.speech import EncodedChunk
from .conversation import ConversationEntry, RealtimeConversation, new_id
from .models import Modality, RealtimeAudioFormat, RealtimeContent, RealtimeItem, RealtimeSettings
from .server_events import (
    RealtimeAudioDoneEvent,
    RealtimeDeltaEvent,
    RealtimeItemEvent,
    RealtimeOutput,
    RealtimeOutputItemEvent,
    RealtimeOutputTokens,
    RealtimePart,
    RealtimePartEvent,
    RealtimeResponse,
    RealtimeResponseEvent,
    RealtimeResponseOutput,
    RealtimeServerEvent,
    RealtimeStatusDetails,
    RealtimeTextDoneEvent,
    RealtimeTranscriptDoneEvent,
    RealtimeUsage,
)

_PCM: Final = RealtimeAudioFormat()
_SPEECH_IDS_PER_S: Final = 25  # unit of audio tokens


@dataclass(frozen=True, slots=True)
class ResponseSettings:
    """How a response is made."""

    voice: str = ""  # "" is the default voice
    format: RealtimeAudioFormat = _PCM
    speed: float = 1.0
    modality: Modality = "audio"
    instructions: str = ""

    def updated(self, changes: RealtimeSettings) -> Self:
        """Return these with what a client changes."""
        output = changes.audio.output
        modalities = changes.output_modalities or [self.modality]
        return replace(
            self,
            voice=self.voice if output.voice is None else output.voice,
            format=output.format or self.format,
            speed=output.speed or self.speed,
            modality="audio" if "audio" in modalities else "text",
            instructions=self.instructions if changes.instructions is None else changes.instructions,
        )

    @property
    def output(self) -> RealtimeOutput:
        """The audio as events have it."""
        return RealtimeOutput(format=self.format, voice=self.voice, speed=self.speed)


class SpokenResponse:
    """A response from its creation to its end.

    Args:
        conversation: that its item is added to, None for none.
        characters: of the text that it is made of.
    """

    def __init__(
        self,
        settings: ResponseSettings,
        conversation: RealtimeConversation | None,
        characters: int,
        metadata: dict[str, str] | None,
    ) -> None:
        self.id = new_id("resp")
        item = RealtimeItem(
            id=new_id("item"), type="message", role="assistant", status="in_progress", content=[]
        )
        self.entry = ConversationEntry(item)
        self.settings = settings
        self.error: OpenAIErrorDetail | None = None  # that ended it
        self.is_cancelled = False
        self._conversation = conversation
        self._characters = characters
        self._metadata = metadata
        self._has_begun = False
        self._text_stop = 0  # characters of its text that have been sent

    @property
    def created(self) -> RealtimeServerEvent:
        """The first event."""
        return RealtimeResponseEvent(type="response.created", response=self._describe("in_progress"))

    def begin(self) -> Iterator[RealtimeServerEvent]:
        """Yield the events before the first audio or text; none once it has begun."""
        if self._has_begun:
            return
        self._has_begun = True
        yield RealtimeOutputItemEvent(type="response.output_item.added", response_id=self.id, item=self._item)
        if self._conversation is not None:
            before = self._conversation.append(self.entry)
            yield RealtimeItemEvent(type="conversation.item.added", previous_item_id=before, item=self._item)
        part = self._part("")
        self._set_text("")
        yield RealtimePartEvent(type="response.content_part.added", **self._place, part=part)

    def transcript_of(self, chunk: EncodedChunk, text: str) -> Iterator[RealtimeServerEvent]:
        """Take a piece of speech; yield the event of the text that belongs to it, if any does.

        text: of the whole response so far.
        """
        self.entry.words += chunk.written_words
        self.entry.audio_s = chunk.samples[1] / SAMPLE_RATE
        words = chunk.written_words
        stop = len(text) if chunk.final else words[-1].text_stop if words else self._text_stop
        start, self._text_stop = self._text_stop, stop
        if start < stop:
            self._set_text(text[:stop])
            yield self._delta("response.output_audio_transcript.delta", text[start:stop])

    def audio_delta(self, audio_in_base64: str) -> RealtimeServerEvent:
        """Return the event of a piece of audio."""
        return self._delta("response.output_audio.delta", audio_in_base64)

    def write(self, text: str) -> Iterator[RealtimeServerEvent]:
        """Yield the events of a text that is not spoken."""
        yield from self.begin()
        self._set_text(text)
        yield self._delta("response.output_text.delta", text)

    def end(self) -> Iterator[RealtimeServerEvent]:
        """Yield the last events."""
        status = "cancelled" if self.is_cancelled else "failed" if self.error else "completed"
        if self._has_begun:
            self._item.status = "completed" if status == "completed" else "incomplete"
            yield from self._end_of_part()
            yield RealtimeOutputItemEvent(
                type="response.output_item.done", response_id=self.id, item=self._item
            )
            if self._conversation is not None:
                yield RealtimeItemEvent(type="conversation.item.done", item=self._item)
        yield RealtimeResponseEvent(type="response.done", response=self._describe(status))

    def _end_of_part(self) -> Iterator[RealtimeServerEvent]:
        text = self._item.text
        if self.settings.modality == "audio":
            yield RealtimeAudioDoneEvent(**self._place)
            yield RealtimeTranscriptDoneEvent(**self._place, transcript=text)
        else:
            yield RealtimeTextDoneEvent(**self._place, text=text)
        yield RealtimePartEvent(type="response.content_part.done", **self._place, part=self._part(text))

    @property
    def _item(self) -> RealtimeItem:
        return self.entry.item

    @property
    def _place(self) -> dict[str, Any]:
        return {"response_id": self.id, "item_id": self._item.id}

    def _delta(self, kind: Any, delta: str) -> RealtimeServerEvent:
        return RealtimeDeltaEvent(type=kind, **self._place, delta=delta)

    def _part(self, text: str) -> RealtimePart:
        if self.settings.modality == "audio":
            return RealtimePart(type="audio", transcript=text)
        return RealtimePart(type="text", text=text)

    def _set_text(self, text: str) -> None:
        if self.settings.modality == "audio":
            self._item.content = [RealtimeContent(type="output_audio", transcript=text)]
        else:
            self._item.content = [RealtimeContent(type="output_text", text=text)]

    def _describe(self, status: Any) -> RealtimeResponse:
        details = {
            "cancelled": RealtimeStatusDetails(type="cancelled", reason="client_cancelled"),
            "failed": RealtimeStatusDetails(type="failed", error=self.error),
        }
        return RealtimeResponse(
            id=self.id,
            status=status,
            status_details=details.get(status),
            output=[self._item] if self._has_begun else [],
            conversation_id=self._conversation.id if self._conversation is not None else None,
            output_modalities=[self.settings.modality],
            audio=RealtimeResponseOutput(output=self.settings.output),
            usage=None if status == "in_progress" else self._usage(),
            metadata=self._metadata,
        )

    def _usage(self) -> RealtimeUsage:
        speech = round(self.entry.audio_s * _SPEECH_IDS_PER_S)
        text = len(self._item.text)
        return RealtimeUsage(
            total_tokens=self._characters + speech + text,
            input_tokens=self._characters,
            output_tokens=speech + text,
            output_token_details=RealtimeOutputTokens(text_tokens=text, audio_tokens=speech),
        )
