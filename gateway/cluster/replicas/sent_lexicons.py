"""Lexicons on their way to replicas: packed once by the gateway, unpacked once by each replica.

The lexicon of a key goes with each of its streams, so that its changes need no message of their own. As an
object, 10,000 words would be pickled for each stream, which takes 27 ms of the gateway's event loop.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Final

from ....tts_engine.backends.recently_used import RecentlyUsed
from ....tts_engine.reading.pronunciation.lexicon import Lexicon, Pronunciation

_MAX_KEPT: Final = 64  # lexicons of keys; those of requests have at most 100 words and push out few


@dataclass(frozen=True, slots=True)
class SentLexicon:
    """A lexicon, named by its content: rows of word, respelling, phonemes and pinyin as JSON."""

    digest: str
    content: bytes


class LexiconPacker:
    """Packs lexicons; one that is packed again costs nothing. Belongs to one thread."""

    def __init__(self) -> None:
        # By the identity of the lexicon, which the value keeps alive.
        self._packed: RecentlyUsed[int, tuple[Lexicon, SentLexicon]] = RecentlyUsed(_MAX_KEPT)

    def pack(self, lexicon: Lexicon) -> SentLexicon:
        """Return the lexicon as it is sent."""
        return self._packed.get(id(lexicon), lambda: (lexicon, _pack(lexicon)))[1]


class LexiconUnpacker:
    """Unpacks lexicons; one that was sent before costs nothing. Belongs to one thread."""

    def __init__(self) -> None:
        self._unpacked: RecentlyUsed[str, Lexicon] = RecentlyUsed(_MAX_KEPT)

    def unpack(self, sent: SentLexicon) -> Lexicon:
        """Return the lexicon that a gateway packed."""
        return self._unpacked.get(sent.digest, lambda: _unpack(sent.content))


def _pack(lexicon: Lexicon) -> SentLexicon:
    rows = [(word, said.respelling, said.phonemes, said.pinyin) for word, said in lexicon.entries.items()]
    content = json.dumps(rows).encode()
    return SentLexicon(hashlib.sha256(content).hexdigest(), content)


def _unpack(content: bytes) -> Lexicon:
    return Lexicon({word: Pronunciation(*said) for word, *said in json.loads(content)})
