"""``PeerPacedMedia``: commands leave when their cause happens, not at the next tick."""

from collections.abc import Sequence

from shared.audio.playout_speech import chunk, constant_level, word
from vivavoce.adapters.media.call_media import MediaReport, RecordedAudio
from vivavoce.adapters.media_streams.peer_playout import (
    PeerClear,
    PeerCommand,
    PeerMark,
    PeerMedia,
    PeerPlayout,
)
from vivavoce.adapters.playback.heard_words import DiscardResult, HeardMark, HeardWord
from vivavoce.gateway.calls.kits.peer_paced_media import PeerPacedMedia


class Recorder:
    """Records what the media report, with the number of commands sent before."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sent: list[PeerCommand] = []
        self.played: list[int] = []
        self.heard: list[str] = []
        self.discards: list[tuple[int, DiscardResult, bool]] = []
        self.media = PeerPacedMedia(
            PeerPlayout(sample_rate=24_000), self.sent.append, now=lambda: self.now, drop_unsent=self.drop
        )
        self.media.set_listener(self)
        self.dropped = 0
        self.recorded: list[RecordedAudio] = []

    def drop(self) -> None:
        self.dropped += 1

    def on_words_heard(self, words: Sequence[HeardWord | HeardMark]) -> None:
        self.heard += [heard.word.text for heard in words if isinstance(heard, HeardWord)]

    def on_played(self, pushes: int) -> None:
        self.played.append(pushes)

    def on_discarded(self, result: DiscardResult, *, requested: bool) -> None:
        self.discards.append((len(self.sent), result, requested))

    def on_caller_speech(self, speaking: bool) -> None: ...

    def on_caller_audio(self, pcm: bytes, sample_rate: int) -> None: ...

    def on_recorded(self, audio: RecordedAudio) -> None:
        self.recorded.append(audio)

    def on_key(self, digit: str) -> None: ...

    def on_report(self, report: MediaReport) -> None: ...


SPEECH = chunk(constant_level(600), word("one", 0.0, 0.2, 0), word("two", 0.3, 0.5, 4), text_stop=7)


def test_speech_leaves_when_it_is_pushed() -> None:
    call = Recorder()
    call.media.push(SPEECH, 0)
    assert sum(len(command.pcm) for command in call.sent if isinstance(command, PeerMedia)) == 28_800
    assert [command.name for command in call.sent if isinstance(command, PeerMark)] == ["m1", "m2", "m3"]


def test_a_discard_is_on_its_way_before_it_is_reported() -> None:
    call = Recorder()
    call.media.push(SPEECH, 0)
    before = len(call.sent)
    call.now += 0.25
    call.media.discard()
    assert call.sent[before:] == [PeerClear()] and call.dropped == 1
    ((sent, result, requested),) = call.discards
    assert (sent, requested) == (before + 1, True)
    assert [heard.text for heard in result.words] == ["one"] == call.heard
    assert result.cut_ms == 350.0


def test_reports_of_the_peer_move_the_words_and_end_the_speech() -> None:
    call = Recorder()
    call.media.push(SPEECH, 0)
    call.media.finish()
    call.media.mark_played("m1")
    call.media.tick(call.now)
    assert call.heard == ["one"] and call.played == []
    call.now += 0.6
    call.media.mark_played("m3")
    call.media.tick(call.now)
    assert call.heard == ["one", "two"] and call.played == [1]


def test_a_full_peer_is_sent_the_rest_when_it_resumes() -> None:
    call = Recorder()
    call.media.pause()
    call.media.push(SPEECH, 0)
    assert call.sent == []
    call.media.resume()
    call.media.tick(call.now)
    assert call.sent != []


def test_a_recording_has_what_was_sent_and_when_the_peer_dropped_it() -> None:
    call = Recorder()
    call.media.push(SPEECH, 0)
    assert call.recorded == []
    call.media.set_recording(True)
    call.media.push(SPEECH, 0)
    call.now += 0.25
    call.media.discard()
    call.media.receive_audio(b"\1\0", 8_000)
    *sent, cut, received = call.recorded
    assert (
        b"".join(audio.pcm for audio in sent)
        == b"".join(command.pcm for command in call.sent if isinstance(command, PeerMedia))[28_800:]
    )
    assert {(audio.at, audio.sample_rate, audio.from_caller) for audio in sent} == {(100.0, 24_000, False)}
    assert cut == RecordedAudio(b"", 24_000, 100.25, from_caller=False, drops_later=True)
    assert received == RecordedAudio(b"\1\0", 8_000, 100.25, from_caller=True)
