"""SIP over TCP and TLS, and media over SRTP, on loopback."""

import asyncio
import datetime
import ipaddress
import ssl
from base64 import b64decode, b64encode
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shared.calls.call_server import call_server, run
from shared.sip.gateway import place, server_of
from shared.sip.network import RecordingListener
from shared.sip.phone import sip_phone, until
from vivavoce.adapters.rtp.srtp import SrtpKeys, SrtpSession
from vivavoce.adapters.sip.session import SessionState
from vivavoce.adapters.sip.transactions import SipFlow
from vivavoce.gateway.calls.ways_in.sip.resolver import SipResolver
from vivavoce.tts_engine.errors import BadRequest

KEY = bytes(range(30))
CRYPTO = f"a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:{b64encode(KEY).decode()}"


def make_certificate(folder: Path, host: str) -> Path:
    """Write a certificate for an IP address or a name, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sip test")])
    is_name = host.endswith(".example")
    subject = x509.DNSName(host) if is_name else x509.IPAddress(ipaddress.ip_address(host))
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([subject]), False)
        .sign(key, hashes.SHA256())
    )
    file = folder / f"{host}.pem"
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(text + certificate.public_bytes(serialization.Encoding.PEM))
    return file


def test_a_call_over_tcp() -> None:
    async def call() -> None:
        async with call_server(sip_port=0) as server, sip_phone() as phone:
            sip = server_of(server)
            session = phone.call(sip.sockets.port, transport="tcp")
            await until(lambda: session.state is SessionState.UP)
            await until(lambda: len(phone.rtp.packets) > 5)
            session.hang_up()
            await until(lambda: len(server.gateway.calls.registry) == 0)

    run(call())


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9"])
def test_a_call_over_tls_needs_a_certificate_of_the_right_name(tmp_path: Path, host: str) -> None:
    certificate = make_certificate(tmp_path, host)

    async def call() -> None:
        tls = {"certificate": str(certificate), "port": 0}
        context = ssl.create_default_context(cafile=certificate)
        async with (
            call_server(sip_port=0, sip_tls=tls) as server,
            sip_phone(context) as phone,
        ):
            sip = server_of(server)
            session = phone.call(sip.sockets.tls_port, transport="tls")
            listener = session.listener
            assert isinstance(listener, RecordingListener)
            await until(lambda: listener.events)
            if host == "127.0.0.1":
                assert listener.names() == ["answered"]
                session.hang_up()
                await until(lambda: len(server.gateway.calls.registry) == 0)
            else:
                assert listener.events == [("ended", 408)]

    run(call())


@pytest.mark.parametrize(
    ("presents", "is_known", "is_trusted"),
    [
        ("trunk.example", True, True),
        ("trunk.example", False, False),  # signed by no authority of the system
        ("server.trunk.example", True, False),  # the name server may be forged: the domain counts
        ("127.0.0.1", True, False),
    ],
)
def test_a_trunk_must_present_its_domain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, presents: str, is_known: bool, is_trusted: bool
) -> None:
    certificate = make_certificate(tmp_path, presents)
    server_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_tls.load_cert_chain(certificate)

    async def call() -> None:
        async with sip_phone(server_tls=server_tls) as provider:
            records = {"_sips._tcp.trunk.example": [SrvTestRecord(provider.sockets.tls_port)]}

            async def srv(self: SipResolver, name: str) -> list[SrvTestRecord]:
                return records.get(name, [])

            async def addresses(self: SipResolver, host: str, port: int, transport: str) -> list[SipFlow]:
                assert host == "server.trunk.example"
                return [SipFlow(transport, ("127.0.0.1", port))]

            monkeypatch.setattr(SipResolver, "srv", srv)
            monkeypatch.setattr(SipResolver, "_addresses", addresses)
            trunk = {"host": "trunk.example", "user": "4930", "password": "secret"}
            trunk |= {"authorities": str(certificate)} if is_known else {}
            outgoing = {"destinations": ["+49"]}
            async with call_server(sip_port=0, sip_trunks={"home": trunk}, sip_outgoing=outgoing) as server:
                registration = server_of(server).trunks["home"].registration
                assert registration is not None
                if not is_trusted:
                    await until(lambda: registration.problem)
                    assert not provider.registered and not registration.is_registered
                    return
                await until(lambda: registration.is_registered)
                await place(server, "+4930777")
                await until(lambda: provider.calls)
                offer = provider.calls[0].request.body
                assert b"RTP/SAVP" in offer and b"a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:" in offer

    run(call())


@dataclass
class SrvTestRecord:
    """The only server of a domain."""

    port: int
    priority: int = 1
    weight: int = 1
    target: str = "server.trunk.example."


def test_a_certificate_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    async def start() -> None:
        with pytest.raises(BadRequest, match="certificate"):
            async with call_server(sip_port=0, sip_tls={"certificate": str(tmp_path / "absent")}):
                pass

    run(start())


@pytest.mark.parametrize("srtp", ["optional", "required", "off"])
def test_media_are_encrypted_with_the_keys_of_both_sides(srtp: str) -> None:
    async def call() -> None:
        media = {"srtp": srtp}
        async with call_server(sip_port=0, sip_media=media) as server, sip_phone() as phone:
            sip = server_of(server)
            offer = phone.describe(CRYPTO).replace(b"RTP/AVP", b"RTP/SAVP")
            session = phone.call(sip.sockets.port, description=offer)
            listener = session.listener
            assert isinstance(listener, RecordingListener)
            await until(lambda: listener.events)
            if srtp == "off":
                assert listener.events == [("ended", 488)]
                return
            answer = listener.last("answered")
            assert isinstance(answer, bytes)
            (line,) = [line for line in answer.decode().split("\r\n") if line.startswith("a=crypto:")]
            theirs = b64decode(line.partition("inline:")[2])
            srtp_session = SrtpSession(SrtpKeys("AES_CM_128_HMAC_SHA1_80", KEY, theirs))
            phone.rtp.raw.clear()
            await until(lambda: len(phone.rtp.raw) > 5)
            assert len(srtp_session.unprotect(phone.rtp.raw[-1]) or b"") == 12 + 160
            plain = phone.call(sip.sockets.port)
            plain_listener = plain.listener
            assert isinstance(plain_listener, RecordingListener)
            await until(lambda: plain_listener.events)
            assert plain_listener.names() == (["ended"] if srtp == "required" else ["answered"])
            await asyncio.sleep(0)

    run(call())
