"""Lines that are kept: shared while they are rendered, bounded, and rendered again after a fault."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from vivavoce.tts_engine.voice_kit.kept_speech import KeptSpeech

PIECES = 3


@dataclass(frozen=True)
class Piece:
    number: int
    last: bool
    nbytes: int = 400_000


class Voice:
    """Renders a line in three pieces, and counts them."""

    def __init__(self) -> None:
        self.rendered = 0
        self.fails_at: int | None = None

    def render(self) -> Iterator[Piece]:
        for number in range(PIECES):
            if self.fails_at == number:
                self.fails_at = None
                raise RuntimeError("out of memory")
            self.rendered += 1
            yield Piece(number, number == PIECES - 1)


def test_a_line_is_rendered_once_whoever_is_ahead() -> None:
    kept, voice = KeptSpeech[Piece](10_000_000), Voice()
    one, other = kept.line("a", voice.render), kept.line("a", voice.render)
    asked = [(one, 0), (other, 0), (other, 1), (one, 1), (one, 2), (other, 2)]
    found = [line.piece(index) for line, index in asked]
    assert [(piece.number, repeated) for piece, repeated in found if piece] == [
        *((0, False), (0, True), (1, False), (1, True), (2, False), (2, True))
    ]
    assert voice.rendered == PIECES


def test_threads_that_ask_at_once_get_the_same_pieces() -> None:
    kept, voice = KeptSpeech[Piece](10_000_000), Voice()
    found: list[list[int]] = []

    def speak() -> None:
        line = kept.line("a", voice.render)
        pieces = [line.piece(index)[0] for index in range(PIECES)]
        found.append([piece.number for piece in pieces if piece])

    threads = [threading.Thread(target=speak) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[0, 1, 2]] * 8 and voice.rendered == PIECES


def test_a_fault_reaches_one_stream_and_the_next_one_renders_on() -> None:
    kept, voice = KeptSpeech[Piece](10_000_000), Voice()
    voice.fails_at = 1
    line = kept.line("a", voice.render)
    assert line.piece(0) == (Piece(0, False), False)
    with pytest.raises(RuntimeError):
        line.piece(1)
    assert kept.line("a", voice.render).piece(1) == (Piece(1, False), False)
    assert voice.rendered == 1 + 2  # the first piece twice


def test_the_lines_asked_for_longest_ago_are_dropped() -> None:
    kept, voice = KeptSpeech[Piece](2_500_000), Voice()
    for key in ("a", "b", "a", "c"):  # 1.2 MB each
        line = kept.line(key, voice.render)
        for index in range(PIECES):
            line.piece(index)
        assert 0 < kept.used_bytes <= 2_500_000
    assert voice.rendered == 3 * PIECES
    kept.line("a", voice.render).piece(0)
    assert voice.rendered == 3 * PIECES
    kept.line("b", voice.render).piece(0)
    assert voice.rendered == 3 * PIECES + 1


def test_lines_that_are_given_up_do_not_fill_the_memory() -> None:
    kept, voice = KeptSpeech[Piece](1_000_000), Voice()
    for key in range(100):
        kept.line(key, voice.render)
    assert kept.used_bytes <= 1_000_000 and len(kept._lines) <= 4


@pytest.mark.parametrize(("max_bytes", "key"), [(0, "a"), (10_000_000, None)])
def test_nothing_is_kept_without_room_or_key(max_bytes: int, key: str | None) -> None:
    kept, voice = KeptSpeech[Piece](max_bytes), Voice()
    for _ in range(2):
        assert kept.line(key, voice.render).piece(0) == (Piece(0, False), False)
    assert kept.used_bytes == 0


def test_a_line_without_sound_has_no_piece() -> None:
    kept = KeptSpeech[Piece](10_000_000)
    for repeated in (False, True):
        assert kept.line("a", lambda: iter(())).piece(0) == (None, repeated)
