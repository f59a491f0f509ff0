"""Upstream CosyVoice's gRPC service, called by gRPC's own client."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shared.gateways.made_settings import make_settings

pytest.importorskip("grpc", reason="gRPC needs an extra: make test EXTRAS=dev,stt,grpc")

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from shared.audio.recordings import recording
from shared.audio.tones import pitch_of
from shared.engine.standin_backend import WORD_S, StandInBackend
from shared.event_loop import until
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.access.origins import Origins
from vivavoce.gateway.apis.dialects.cosyvoice_server import grpc_server
from vivavoce.gateway.apis.dialects.cosyvoice_server.grpc_messages import CosyVoiceMessages
from vivavoce.gateway.apis.dialects.cosyvoice_server.grpc_server import CosyVoiceGrpcServer
from vivavoce.gateway.listening_sockets import AddressUnavailable
from vivavoce.gateway.serve import Gateway
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.stream_request import DeliveryMode
from vivavoce.tts_engine.voices.store import VoiceStore

TEXT = "One two three."
MESSAGES = CosyVoiceMessages()
PCM = recording()[44:]


@asynccontextmanager
async def open_channel(served: Any) -> AsyncIterator[Any]:
    port = await served.apis.listen("grpc", ("127.0.0.1", 0))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel


def inference(channel: Any) -> Any:
    return channel.unary_stream(
        "/cosyvoice.CosyVoice/Inference",
        request_serializer=MESSAGES.request.SerializeToString,
        response_deserializer=MESSAGES.response.FromString,
    )


async def speak(channel: Any, metadata: Any = None, **payload: Any) -> bytes:
    call = inference(channel)(MESSAGES.request(**payload), metadata=metadata)
    return b"".join([response.tts_audio async for response in call])


def test_the_messages_are_those_of_upstreams_definition() -> None:
    # Field number and wire type, then the value, as protoc's code writes them.
    request = MESSAGES.request(sft_request={"spk_id": "a", "tts_text": "b"})
    assert request.SerializeToString() == b"\x0a\x06\x0a\x01a\x12\x01b"
    request = MESSAGES.request(zero_shot_request={"tts_text": "a", "prompt_text": "b", "prompt_audio": b"c"})
    assert request.SerializeToString() == b"\x12\x09\x0a\x01a\x12\x01b\x1a\x01c"
    request = MESSAGES.request(cross_lingual_request={"tts_text": "a", "prompt_audio": b"c"})
    assert request.SerializeToString() == b"\x1a\x06\x0a\x01a\x12\x01c"
    request = MESSAGES.request(instruct_request={"tts_text": "a", "spk_id": "b", "instruct_text": "c"})
    assert request.SerializeToString() == b"\x22\x09\x0a\x01a\x12\x01b\x1a\x01c"
    assert MESSAGES.response(tts_audio=b"a").SerializeToString() == b"\x0a\x01a"


@pytest.mark.parametrize(
    ("name", "fields", "mode", "pitch"),
    [
        ("sft_request", {"spk_id": "tone-330"}, None, 330),
        ("zero_shot_request", {"prompt_text": "Words.", "prompt_audio": PCM}, DeliveryMode.ZERO_SHOT, 220),
        ("cross_lingual_request", {"prompt_audio": PCM + b"\0"}, DeliveryMode.CROSS_LINGUAL, 220),
        ("instruct_request", {"spk_id": "tone-330", "instruct_text": "Softly."}, None, 330),
    ],
)
def test_every_mode_is_spoken(
    run_every_api: Any, store: VoiceStore, name: str, fields: Any, mode: Any, pitch: int
) -> None:
    async def test(served: Any) -> None:
        async with open_channel(served) as channel:
            pcm = await speak(channel, **{name: {"tts_text": TEXT, **fields}})
            assert len(pcm) >= 3 * WORD_S * 48_000
            assert pitch_of(pcm) == pytest.approx(pitch, rel=0.02)
            delivery = served.backend.requests[-1].delivery
            assert (delivery.mode, delivery.instruction) == (mode, fields.get("instruct_text", ""))

    run_every_api(test, store=store)


@pytest.mark.parametrize(
    ("payload", "code", "word"),
    [
        ({}, "INVALID_ARGUMENT", "RequestPayload"),
        ({"sft_request": {"tts_text": TEXT, "spk_id": "nobody"}}, "NOT_FOUND", "nobody"),
        ({"sft_request": {"tts_text": "", "spk_id": "tone-330"}}, "INVALID_ARGUMENT", "tts_text"),
        ({"cross_lingual_request": {"tts_text": TEXT, "prompt_audio": PCM}}, "INVALID_ARGUMENT", "clone"),
    ],
)
def test_errors_are_statuses(run_every_api: Any, payload: Any, code: str, word: str) -> None:
    async def test(served: Any) -> None:
        async with open_channel(served) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await speak(channel, **payload)
            assert (error.value.code().name, word in error.value.details()) == (code, True)

    run_every_api(test)


def test_a_failing_voice_is_an_internal_error(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        async with open_channel(served) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await speak(channel, sft_request={"tts_text": TEXT, "spk_id": "tone-330"})
            assert error.value.code().name == "INTERNAL"

    run_every_api(test, broken_after=0)


def test_a_call_that_is_cancelled_frees_its_slot(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        async with open_channel(served) as channel:
            request = MESSAGES.request(sft_request={"tts_text": "One two. " * 400, "spk_id": "tone-330"})
            call = inference(channel)(request)
            await call.read()
            call.cancel()
            await until(lambda: served.backend.open_slots == 0)

    run_every_api(test, step_s=0.005)


def test_a_client_that_reads_nothing_pauses_its_speech_and_is_cut_off(
    run_every_api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_server, "SEND_TIMEOUT_S", 0.5)

    async def test(served: Any) -> None:
        async with open_channel(served) as channel:
            request = MESSAGES.request(sft_request={"tts_text": "One two. " * 400, "spk_id": "tone-330"})
            call = inference(channel)(request)
            await until(lambda: bool(served.backend.requests))
            await until(lambda: served.backend.open_slots == 0)
            assert served.backend.steps < 800  # words of the text
            with pytest.raises(grpc.aio.AioRpcError) as error:
                async for _ in call:
                    pass
            assert error.value.code().name == "DEADLINE_EXCEEDED"

    run_every_api(test)


ON_LOOPBACK = Origins(loopback_names_only=True)  # as a gateway has it by default


def test_a_server_on_loopback_without_keys_speaks(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        async with open_channel(served) as channel:
            assert await speak(channel, sft_request={"tts_text": TEXT, "spk_id": "tone-330"})

    run_every_api(test, access=AccessControl.open_to_all(ON_LOOPBACK))


def test_a_call_ends_when_its_key_is_revoked(run_every_api: Any, tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("anna", (Scope.SPEAK,), KeyLimits())
    access = AccessControl(keys)

    async def test(served: Any) -> None:
        watching = asyncio.create_task(access.watch())
        async with open_channel(served) as channel:
            request = MESSAGES.request(sft_request={"tts_text": f"{TEXT} " * 270})
            call = inference(channel)(request, metadata=(("x-api-key", key),))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                async for _ in call:
                    keys.revoke(key[3:11])
                    await asyncio.sleep(0.01)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert "was revoked" in refused.value.details()
        watching.cancel()

    run_every_api(test, access=access)


def test_only_the_health_check_needs_no_key(run_every_api: Any, tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("anna", (Scope.SPEAK,), KeyLimits())

    async def services(channel: Any, metadata: Any) -> set[str]:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        call = stub.ServerReflectionInfo(iter([request]), metadata=metadata)
        return {service.name async for answer in call for service in answer.list_services_response.service}

    async def test(served: Any) -> None:
        async with open_channel(served) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            answer = await health.Check(health_pb2.HealthCheckRequest(service="cosyvoice.CosyVoice"))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            payload = {"sft_request": {"tts_text": TEXT, "spk_id": "tone-330"}}
            for work in (speak(channel, **payload), services(channel, None)):
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await work
                assert error.value.code().name == "UNAUTHENTICATED"
            for metadata in ([("authorization", f"Bearer {key}")], [("x-api-key", key)]):
                assert await speak(channel, metadata, **payload)
                assert "cosyvoice.CosyVoice" in await services(channel, metadata)

    run_every_api(test, access=AccessControl(keys, ON_LOOPBACK))


def test_reflection_describes_the_request(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        async with open_channel(served) as channel:
            stub = reflection_pb2_grpc.ServerReflectionStub(channel)
            request = reflection_pb2.ServerReflectionRequest(file_containing_symbol="cosyvoice.CosyVoice")
            async for answer in stub.ServerReflectionInfo(iter([request])):
                (file,) = answer.file_descriptor_response.file_descriptor_proto
                assert b"zero_shot_request" in file

    run_every_api(test)


def test_a_server_that_drains_refuses_calls_and_is_not_healthy(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        async with open_channel(served) as channel:
            served.apis.server.start_draining()
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await speak(channel, sft_request={"tts_text": TEXT, "spk_id": "tone-330"})
            assert error.value.code().name == "UNAVAILABLE"

    run_every_api(test)


def test_a_gateway_serves_grpc_on_its_port_and_reports_one_that_is_taken() -> None:
    async def test() -> None:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
        settings = make_settings(
            http_port=0,
            audiosocket_port=0,
            agents_default="none",
            apis_ports_grpc=port,
        )
        async with (
            asyncio.timeout(60.0),
            await Engine.open(backend=StandInBackend()) as engine,
            aclosing(await Gateway.open(settings, engine=engine)),
            grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        ):
            answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            with pytest.raises(AddressUnavailable, match=r"apis\.ports\.grpc"):
                await Gateway.open(settings, engine=engine)

    asyncio.run(test())


def test_silent_connections_are_closed_by_a_deadline(
    run_every_api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_server, "_FIRST_FRAME_S", 1)

    async def test(served: Any) -> None:
        server = CosyVoiceGrpcServer(served.apis.server)
        port = await server.start(("127.0.0.1", 0))
        try:
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
            for reader, writer in silent:
                while await reader.read(65_536):  # the server's own settings, and then the end
                    pass
                writer.close()
        finally:
            await server.finish(1.0)

    run_every_api(test)


def test_the_number_of_connections_leaves_descriptors_to_calls(
    run_every_api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_server, "descriptor_limit", lambda: 24)

    async def test(served: Any) -> None:
        server = CosyVoiceGrpcServer(served.apis.server)
        port = await server.start(("127.0.0.1", 0))
        try:
            first = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            for reader, _ in first:
                assert await reader.read(9)  # the header of the server's settings
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await reader.read() == b""
            for _, each in [*first, (reader, writer)]:
                each.close()
        finally:
            await server.finish(1.0)

    run_every_api(test)
