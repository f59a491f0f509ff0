"""What the goodbye bench and the network-change bench make of audio that is known."""

import pytest

from benches.goodbye import SPOKEN_S, Goodbye
from benches.network_change import CLAUSE_WORDS, WORDS, frequency_of, measured, text
from shared.audio.tones import tone
from shared.engine.standin_backend import WORD_S
from vivavoce.gateway.cli.phones.received_audio import ReceivedPacket

RATE = 8_000
PACKET_S = 0.02


def packets_of(pcm: bytes, rate: int = RATE, begin_s: float = 0.0) -> list[ReceivedPacket]:
    """Packets of 20 ms, each arriving when it is due."""
    size = 2 * round(PACKET_S * rate)
    return [
        ReceivedPacket(begin_s + number * PACKET_S, rate, pcm[start : start + size])
        for number, start in enumerate(range(0, len(pcm), size))
    ]


def spoken(seconds: float) -> bytes:
    return tone(440, RATE, 0, round(seconds * RATE))


@pytest.mark.parametrize("cut_s", [0.0, 0.08])
def test_a_goodbye_is_whole_if_its_end_was_heard(cut_s: float) -> None:
    silence = bytes(2 * RATE // 10)
    pcm = silence + spoken(SPOKEN_S - cut_s) + silence
    goodbye = Goodbye.of(packets_of(pcm), closed_at=0.1 + SPOKEN_S - cut_s + 0.15)
    assert goodbye.is_whole == (cut_s == 0.0)
    assert goodbye.closed_ms == pytest.approx(150, abs=1)


def test_a_goodbye_with_a_hole_is_not_whole() -> None:
    pcm = bytearray(spoken(SPOKEN_S))
    pcm[RATE : RATE + 640] = bytes(640)  # 40 ms
    goodbye = Goodbye.of(packets_of(bytes(pcm)), closed_at=SPOKEN_S)
    assert goodbye.longest_hole_s == pytest.approx(0.04, abs=0.002)
    assert not goodbye.is_whole
    assert not Goodbye.of(packets_of(bytes(len(pcm))), closed_at=SPOKEN_S).is_whole


def test_words_lost_and_repeated_are_told_from_their_tones() -> None:
    assert text().count("word") == WORDS and text().count(",") == WORDS // CLAUSE_WORDS - 1
    rate = 48_000
    words = [tone(frequency_of(word), rate, 0, round(WORD_S * rate)) for word in range(WORDS)]
    silence = bytes(2 * rate)
    before = packets_of(silence + b"".join(words[:12]), rate)
    after = packets_of(silence + b"".join(words[11:20] + words[23:]), rate, begin_s=3.5)
    change = measured(before, after)
    assert (change.lost, change.repeated) == (3, 1)
    assert change.silence_s == pytest.approx(3.5 + 1.0 - (1.0 + 12 * WORD_S), abs=0.03)
