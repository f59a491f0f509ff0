"""Speech that waits while the listener is on hold, on both playouts."""

import numpy as np
import pytest

from vivavoce.adapters.media_streams.peer_playout import PeerClear, PeerMark, PeerMedia, PeerPlayout
from vivavoce.adapters.playback.playout import Playout
from vivavoce.tts_engine.chunk import SAMPLE_RATE, AudioChunk, Provenance, Word

RATE = 8_000


def words_of(count: int) -> AudioChunk:
    """Words of half a second, each at its own level: 1000, 2000, ..."""
    levels = np.repeat(1000 * np.arange(1, count + 1), RATE // 2).astype("<i2")
    words = tuple(Word(f"w{n}", n / 2, n / 2 + 0.5, 3 * n, 3 * n + 2) for n in range(count))
    samples = (0, count * SAMPLE_RATE // 2)
    return AudioChunk(
        levels.tobytes(),
        0,
        samples,
        (0, 3 * count),
        words,
        Provenance(None, None, 0, 0),
        True,
        sample_rate=RATE,
    )


def play(playout: Playout, packets: int) -> list[int]:
    """The levels of the next packets, each once."""
    levels = [
        int(np.frombuffer(p, "<i2")[0]) for _ in range(packets) for p in playout.due(playout.next_due())
    ]
    return [level for index, level in enumerate(levels) if index == 0 or level != levels[index - 1]]


@pytest.mark.parametrize(
    ("packets", "heard", "goes_on_with"),
    [
        (35, ["w0"], [2000, 3000, 0]),  # in the first half of the second word: it comes again
        (45, ["w0", "w1"], [3000, 0]),  # in its second half: it was heard
    ],
)
def test_speech_stops_and_goes_on_at_a_word(packets: int, heard: list[str], goes_on_with: list[int]) -> None:
    playout = Playout(start=0.0, sample_rate=RATE)
    playout.push(words_of(3))
    playout.finish()
    play(playout, packets)
    playout.hold(playout.next_due())
    lead = playout.lead_s(playout.next_due())
    assert play(playout, 500) == [0]
    assert [word.word.text for word in playout.take_heard_words()] == heard  # type: ignore[union-attr]
    assert playout.lead_s(playout.next_due()) == pytest.approx(lead, abs=0.021)
    playout.release(playout.next_due())
    assert play(playout, 200) == goes_on_with
    rest = [word.word.text for word in playout.take_heard_words()]  # type: ignore[union-attr]
    assert heard + rest == ["w0", "w1", "w2"]
    assert playout.stats.underruns == 0 and playout.is_idle(playout.next_due())


@pytest.mark.parametrize(("at", "goes_on_with"), [(0.7, [2000, 3000]), (0.9, [3000])])
def test_the_queue_of_a_peer_is_dropped_and_sent_again(at: float, goes_on_with: list[int]) -> None:
    playout = PeerPlayout(sample_rate=RATE)
    playout.push(words_of(3))
    playout.finish()
    playout.due(0.0)
    playout.due(0.3)
    playout.hold(at)
    assert [type(command) for command in playout.due(at)] == [PeerClear]
    assert playout.due(60.0) == [] and playout.stats.underruns == 0
    playout.release(60.0)
    sent, now, marks = b"", 60.0, list[str]()
    while not playout.is_idle(now):
        for command in playout.due(now):
            sent += command.pcm if isinstance(command, PeerMedia) else b""
            marks += [command.name] if isinstance(command, PeerMark) else []
        now += 0.02
        if playout.lead_s(now) <= 0:
            playout.mark_played(marks[-1], now)
    levels = np.frombuffer(sent, "<i2")
    assert list(dict.fromkeys(levels[levels > 0].tolist())) == goes_on_with
    assert len(sent) / 2 / RATE == pytest.approx(0.5 * len(goes_on_with), abs=0.021)
    assert [heard.word.text for heard in playout.take_heard_words()] == ["w0", "w1", "w2"]  # type: ignore[union-attr]
