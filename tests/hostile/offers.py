"""SDP offers of a browser in which lines or words are removed, repeated, moved or replaced."""

import re
from random import Random
from typing import Final

from aiortc import RTCConfiguration, RTCPeerConnection

_WORDS: Final = ("", "0", "-1", "1", "111", "999999999999", "x", "é", "*", "audio", "application", "BUNDLE")
_SEPARATORS: Final = re.compile(r"([ :/;=])")


async def browser_offers() -> list[str]:
    """Return valid offers: of audio, of audio and data, and of audio, video and data."""
    return [await _offer(kinds) for kinds in (("audio",), ("audio", "data"), ("audio", "video", "data"))]


async def _offer(kinds: tuple[str, ...]) -> str:
    browser = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    for kind in kinds:
        if kind == "data":
            browser.createDataChannel("page")
        else:
            browser.addTransceiver(kind, direction="sendrecv")
    await browser.setLocalDescription(await browser.createOffer())
    sdp = str(browser.localDescription.sdp)
    await browser.close()
    return sdp


def changed_offer(sdp: str, random: Random) -> str:
    """Return the offer with one to three changes."""
    lines = sdp.splitlines()
    for _ in range(random.randint(1, 3)):
        if lines:
            _change(lines, random)
    return "\r\n".join(lines) + "\r\n"


def _change(lines: list[str], random: Random) -> None:
    at, other = random.randrange(len(lines)), random.randrange(len(lines))
    match random.choice(("remove", "repeat", "swap", "cut", "insert", "word", "word")):
        case "remove":
            del lines[at]
        case "repeat":
            lines.insert(at, lines[other])
        case "swap":
            lines[at], lines[other] = lines[other], lines[at]
        case "cut":
            lines[at] = lines[at][: random.randrange(len(lines[at]) + 1)]
        case "insert":
            lines[other:other] = lines[at : at + 12]
        case _:
            words = _SEPARATORS.split(lines[at])
            words[random.randrange(len(words))] = random.choice((*_WORDS, *lines[other].split(" ")))
            lines[at] = "".join(words)
