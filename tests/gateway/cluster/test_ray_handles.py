"""What a replica asks of other deployments, with handles of a few lines in the place of Ray Serve's."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import pytest

ray = pytest.importorskip("ray", reason="the extra ray is not installed")

from ray.exceptions import RayError  # noqa: E402
from ray.serve import context as request_context  # noqa: E402

from shared.event_loop import until  # noqa: E402
from vivavoce.gateway.cluster.ray.enrolment_replica import EnrolmentReplica, RayEncoders  # noqa: E402
from vivavoce.gateway.cluster.ray.render_connection import RayRenderReplicas  # noqa: E402
from vivavoce.tts_engine.backends.divided_stages import RenderReplicaDescription  # noqa: E402
from vivavoce.tts_engine.cosyvoice.rendering.remote_render_stage import RemoteRenderStage  # noqa: E402
from vivavoce.tts_engine.errors import BadRequest, Overloaded, SynthesisFailed  # noqa: E402
from vivavoce.tts_engine.metrics import Metrics  # noqa: E402


class Call:
    """A call under way; ``cancelled`` as the callee notices it."""

    def __init__(self, answer: Callable[[], object]) -> None:
        self._task = asyncio.ensure_future(self._run(answer))
        self.request_id = request_context._get_serve_request_context()._internal_request_id

    async def _run(self, answer: Callable[[], object]) -> object:
        found = answer()
        return await found if inspect.isawaitable(found) else found

    def __await__(self) -> object:
        return self._task.__await__()

    def cancel(self) -> None:
        self._task.cancel()

    @property
    def is_under_way(self) -> bool:
        return not self._task.done()


class Handle:
    """Answers each method with a function of its own. listed: what a broadcast finds."""

    def __init__(self, **answers: Callable[..., object]) -> None:
        self.answers = answers
        self.calls: dict[str, list[tuple[tuple[object, ...], Call]]] = {name: [] for name in answers}
        self.listed: list[object] = []

    def options(self, method_name: str) -> "HandleMethod":
        return HandleMethod(self, method_name)

    def broadcast(self, method: str, *arguments: object) -> "Handle":
        return self

    async def results_async(self, **_: object) -> list[object]:
        return list(self.listed)


class HandleMethod:
    def __init__(self, handle: Handle, method: str) -> None:
        self._handle, self._method = handle, method

    def remote(self, *arguments: object) -> Call:
        answer = self._handle.answers[self._method]
        call = Call(lambda: answer(*arguments))
        self._handle.calls[self._method].append((arguments, call))
        return call


def forever(*_: object) -> Awaitable[bool]:
    return asyncio.Event().wait()


def describe(replica: str) -> RenderReplicaDescription:
    return RenderReplicaDescription(replica, "same", sentences=0, free_sentences=8, is_full=False)


def render_replicas() -> tuple[Handle, RayRenderReplicas, RemoteRenderStage]:
    handle = Handle(
        answer_for=lambda replica, decoder: describe(replica), keep_running=forever, release=lambda *_: None
    )
    replicas = RayRenderReplicas(handle)  # type: ignore[arg-type]
    return handle, replicas, RemoteRenderStage(replicas, "same", replicas.decoder)


def test_a_replica_that_serve_stops_is_kept_running_until_its_last_sentence_has_ended() -> None:
    async def test() -> None:
        handle, replicas, stage = render_replicas()
        handle.listed = [describe("one"), describe("two")]
        await replicas._update(stage)
        await until(lambda: len(handle.calls["keep_running"]) == 2)
        one = next(call for (replica, _), call in handle.calls["keep_running"] if replica == "one")
        stage._replicas["one"].sentences.add(1)  # as ``RemoteRenderStage._place`` does
        handle.listed = [describe("two")]  # Serve stops the first one
        for polls in (1, 2, 3):
            await replicas._update(stage)
            assert one.is_under_way and "one" in stage.replicas
            assert [arguments[0] for arguments, _ in handle.calls["answer_for"]] == ["one"] * polls
        assert stage.memory_slots([]) == 1 + 8  # the place of its sentence, and the room of the other one
        stage._replicas["one"].sentences.clear()
        await replicas._update(stage)
        await until(lambda: not one.is_under_way)
        await replicas._update(stage)
        assert len(handle.calls["answer_for"]) == 4  # it is not asked any more
        assert len(handle.calls["keep_running"]) == 2

    asyncio.run(test())


def test_a_replica_that_is_listed_again_keeps_its_call() -> None:
    async def test() -> None:
        handle, replicas, stage = render_replicas()
        handle.listed = [describe("one")]
        await replicas._update(stage)
        stage._replicas["one"].sentences.add(1)
        handle.listed = [RayError("it was slow")]
        await replicas._update(stage)
        handle.listed = [describe("one")]
        await replicas._update(stage)
        ((_, call),) = handle.calls["keep_running"]
        assert call.is_under_way
        assert not stage._replicas["one"].is_leaving

    asyncio.run(test())


def test_calls_of_several_streams_in_one_request_have_ids_of_their_own() -> None:
    """Ray Serve's router spins on two waiting calls with one id, and then nothing reaches a replica."""

    async def test() -> None:
        handle, replicas, _ = render_replicas()
        context = request_context._get_serve_request_context()
        within = replace(context, _internal_request_id="of run_commands")
        token = request_context._serve_request_context.set(within)
        try:
            for sentence in range(2):
                replicas.release("one", replicas.decoder, sentence)
        finally:
            request_context._serve_request_context.reset(token)
        await until(lambda: len(handle.calls["release"]) == 2)
        assert [call.request_id for _, call in handle.calls["release"]] == ["", ""]  # Serve makes new ones

    asyncio.run(test())


def encoders(*answers: object) -> tuple[Handle, RayEncoders]:
    """Enrolment replicas that give these answers in turn; an exception is raised."""
    left = list(answers)

    def answer(*_: object) -> object:
        given = left.pop(0)
        if isinstance(given, RayError):
            failed: Future[object] = Future()
            failed.set_exception(given)
            return asyncio.wrap_future(failed)
        return given

    handle = Handle(encode=answer)
    return handle, RayEncoders(handle)  # type: ignore[arg-type]


def test_a_recording_is_encoded_by_another_replica_when_one_is_lost() -> None:
    async def test() -> None:
        handle, found = encoders(RayError("it died"), b"prompt")
        assert await found.encode("digest", [], "a tone") == b"prompt"
        assert [arguments for arguments, _ in handle.calls["encode"]] == [("digest", [], "a tone")] * 2

    asyncio.run(test())


def test_a_recording_that_ends_replicas_is_given_up_and_a_bad_one_is_refused() -> None:
    async def test() -> None:
        handle, found = encoders(RayError("it died"), RayError("it died"), b"prompt")
        with pytest.raises(Overloaded, match="no enrolment replica"):
            await found.encode("digest", [], "")
        assert len(handle.calls["encode"]) == 2
        _, found = encoders(BadRequest("too short"))
        with pytest.raises(BadRequest, match="too short"):
            await found.encode("digest", [], "")

    asyncio.run(test())


def test_an_enrolment_replica_with_other_encoders_encodes_nothing() -> None:
    replica = EnrolmentReplica.__new__(EnrolmentReplica)
    replica._voices, replica._metrics = SimpleNamespace(encoder_digest="other"), Metrics()
    answer = asyncio.run(replica.encode("digest", [], ""))
    assert isinstance(answer, SynthesisFailed) and "encoders of another bundle" in str(answer)
    assert replica._metrics.failures._value.get() == 1
