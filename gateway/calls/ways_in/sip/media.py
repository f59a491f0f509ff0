"""The media of one call: what is offered and answered, and how its RTP then is."""

import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from .....adapters.rtp.codec import CODECS, TELEPHONE_EVENT, RtpCodec
from .....adapters.rtp.connection import RtpOptions
from .....adapters.rtp.source_lock import Address
from .....adapters.rtp.srtp import SRTP_KEY_BYTES, SrtpKeys, SrtpSuite
from .....adapters.sip.headers import SipSyntaxError
from .....adapters.sip.session import SipRejected
from .....adapters.sip.session_description import (
    AudioDescription,
    MediaDirection,
    MediaFormat,
    MediaKey,
    SessionDescription,
    SessionOrigin,
    make_session,
    parse_session,
)
from ....access.networks import AddressSet

_NAMES: Final = {
    "pcmu/8000": "ulaw",
    "pcma/8000": "alaw",
    "l16/8000": "slin",
    "l16/16000": "slin16",
    "g722/8000": "g722",
    "opus/48000/2": "opus",
}
_FORMATS: Final = {
    "ulaw": MediaFormat("pcmu", 0, 8_000),
    "alaw": MediaFormat("pcma", 8, 8_000),
    "g722": MediaFormat("g722", 9, 8_000),
    "slin": MediaFormat("l16", 96, 8_000),
    "slin16": MediaFormat("l16", 97, 16_000),
    "opus": MediaFormat("opus", 98, 48_000, 2, "useinbandfec=1"),
}
_SUITES: Final[dict[str, SrtpSuite]] = {
    "AES_CM_128_HMAC_SHA1_80": "AES_CM_128_HMAC_SHA1_80",
    "AES_CM_128_HMAC_SHA1_32": "AES_CM_128_HMAC_SHA1_32",
}
_DEFAULT_SUITE: Final = "AES_CM_128_HMAC_SHA1_80"


@dataclass(frozen=True, slots=True)
class MediaPolicy:
    """What media a peer may have."""

    codecs: tuple[str, ...]  # names, the best one first
    srtp: str  # "off", "optional" or "required"
    networks: AddressSet  # of media, beside the host that signals


@dataclass(frozen=True, slots=True)
class AgreedMedia:
    """What both sides agreed on."""

    rtp: RtpOptions
    direction: MediaDirection  # of ours

    @property
    def is_held(self) -> bool:
        """Whether the peer does not listen."""
        return self.direction in (MediaDirection.RECEIVES, MediaDirection.NOTHING)


class MediaNegotiation:
    """Offers and answers of one call.

    Args:
        address: where we receive, as the peer must see it.
        host: IP address of the peer's signalling.
    """

    def __init__(self, policy: MediaPolicy, address: Address, host: str) -> None:
        self.agreed: AgreedMedia | None = None
        self._policy = policy
        self._address = address
        self._host = host
        self._origin = SessionOrigin(secrets.randbelow(1 << 31), 0)
        self._key = secrets.token_bytes(SRTP_KEY_BYTES)

    @property
    def port(self) -> int:
        """Where we receive."""
        return self._address[1]

    def move(self, address: Address, host: str) -> None:
        """Negotiate with another peer, from before anything was agreed on."""
        self._address, self._host = address, host

    def answer(self, offer: bytes) -> bytes:
        """Return the answer to an offer, and note what is agreed; raises SipRejected."""
        session = _parse(offer)
        agreed, key = self._agree(session)
        codec = agreed.rtp.codec
        chosen = next(each for each in _audio_of(session).formats if each.payload_type == codec.payload_type)
        audio = AudioDescription(
            self._address,
            (chosen,),
            agreed.rtp.key_type,
            agreed.direction,
            () if key is None else (MediaKey(key.tag, key.suite, self._key),),
        )
        self.agreed = agreed
        return self._describe(audio, session)

    def offer(self, *, is_secure: bool = False) -> bytes:
        """Return an offer of all that may be, or of what is agreed on. is_secure: of the signalling."""
        policy, agreed = self._policy, self.agreed
        secure = policy.srtp == "required" or (policy.srtp == "optional" and is_secure)
        formats: Sequence[MediaFormat] = [_FORMATS[name] for name in policy.codecs]
        key_type: int | None = TELEPHONE_EVENT
        if agreed is not None:
            codec, key_type, secure = agreed.rtp.codec, agreed.rtp.key_type, agreed.rtp.srtp is not None
            formats = [replace(_FORMATS[codec.name], payload_type=codec.payload_type)]
        keys = (MediaKey(1, _DEFAULT_SUITE, self._key),) if secure else ()
        return self._describe(AudioDescription(self._address, tuple(formats), key_type, keys=keys), None)

    def accept(self, answer: bytes) -> AgreedMedia:
        """Return what an answer to our offer agrees on; raises SipRejected."""
        self.agreed, _ = self._agree(_parse(answer))
        return self.agreed

    def _describe(self, audio: AudioDescription, offer: SessionDescription | None) -> bytes:
        self._origin = replace(self._origin, version=self._origin.version + 1)
        return make_session(audio, self._origin, offer)

    def _agree(self, session: SessionDescription) -> tuple[AgreedMedia, MediaKey | None]:
        audio = _audio_of(session)
        codec = self._choose_codec(audio)
        key = self._choose_key(audio)
        suite = None if key is None else _SUITES[key.suite]
        srtp = None if suite is None or key is None else SrtpKeys(suite, self._key, key.key)
        peer = self._allowed_address(audio)
        direction = audio.direction.opposite
        rtp = RtpOptions(codec, peer, audio.key_type, srtp, sends=audio.direction.listens)
        return AgreedMedia(rtp, direction), key

    def _choose_codec(self, audio: AudioDescription) -> RtpCodec:
        """Return the first codec of the peer's that may be used; during a call, one of the same rate."""
        for each in audio.formats:
            name = _NAMES.get(each.encoding)
            if name is None or name not in self._policy.codecs or name not in CODECS:
                continue
            codec = CODECS[name].with_payload_type(each.payload_type)
            if self.agreed is None or codec.sample_rate == self.agreed.rtp.codec.sample_rate:
                return codec
        offered = ", ".join(each.encoding for each in audio.formats[:8]) or "none"
        raise SipRejected(488, f"no codec in common, offered were {offered}")

    def _choose_key(self, audio: AudioDescription) -> MediaKey | None:
        if not audio.keys:
            if self._policy.srtp == "required":
                raise SipRejected(488, "media must be encrypted with SRTP")
            return None
        usable = (each for each in audio.keys if each.suite in _SUITES and len(each.key) == SRTP_KEY_BYTES)
        key = next(usable, None)
        if key is None or self._policy.srtp == "off":
            raise SipRejected(488, "no key of SRTP that can be used")
        return key

    def _allowed_address(self, audio: AudioDescription) -> Address:
        """Return where media go: to the host that signals, or to one that may have media.

        A private address behind NAT is replaced by the host that signals; RTP then comes from there. So is
        any address if a phone of this machine signals over loopback: its media do not leave the machine.
        """
        host, port = audio.address
        if host in (self._host, "0.0.0.0", "::"):
            return self._host, port
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            raise SipRejected(488, "the address of the media is a name") from None
        if host in self._policy.networks:
            return host, port
        signalling = ipaddress.ip_address(self._host)
        if signalling.is_loopback or (address.is_private and not signalling.is_private):
            return self._host, port
        raise SipRejected(488, "media may not go to this address")


def _parse(body: bytes) -> SessionDescription:
    try:
        return parse_session(body)
    except SipSyntaxError as error:
        raise SipRejected(400, str(error)) from None


def _audio_of(session: SessionDescription) -> AudioDescription:
    if session.audio is None or session.audio.address[1] == 0:
        raise SipRejected(488, "no audio")
    return session.audio
