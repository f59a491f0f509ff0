"""Render replicas in this process, behind messages that are pickled as a transport would."""

import pickle
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from vivavoce.tts_engine.backends.divided_stages import RenderReplicaLost
from vivavoce.tts_engine.cosyvoice.conditioning import FlowPrompt
from vivavoce.tts_engine.cosyvoice.loading import load_render_host
from vivavoce.tts_engine.cosyvoice.policy import CosyVoicePolicy
from vivavoce.tts_engine.cosyvoice.rendering.remote_render_stage import RemoteRenderStage
from vivavoce.tts_engine.cosyvoice.rendering.render_host import RenderHost
from vivavoce.tts_engine.cosyvoice.rendering.render_messages import ChunkRequest, RenderReply


class LocalRenderReplicas:
    """A ``RenderTransport`` to hosts here. requests: all that were sent, with the replica."""

    def __init__(self, folder: Path, policy: CosyVoicePolicy, count: int) -> None:
        self.hosts: dict[str, RenderHost] = {}
        for number in range(1, count + 1):
            name = f"render-{number}"
            self.hosts[name] = load_render_host(folder, policy, name, "same")
        self.requests: list[tuple[str, ChunkRequest]] = []
        self.bytes_sent = 0
        self.voices_sent: list[tuple[str, str]] = []
        self.released: list[tuple[str, int]] = []
        self.dead: set[str] = set()
        self.silent: set[str] = set()
        self.before_request: Callable[[str], None] = lambda replica: None
        self.before_answer: Callable[[str, ChunkRequest], None] = lambda replica, request: None
        self.clock_s = 0.0

    def stage(self, decoder: str = "decode-1") -> RemoteRenderStage:
        """The render stage of a decode replica; its replicas are those that live now."""
        stage = RemoteRenderStage(self, "same", decoder, clock=lambda: self.clock_s)
        self.update(stage, decoder)
        return stage

    def update(self, stage: RemoteRenderStage, decoder: str = "decode-1") -> None:
        living = [host for name, host in self.hosts.items() if name not in self.dead | self.silent]
        stage.update([pickle.loads(pickle.dumps(host.describe(decoder))) for host in living])

    def render(self, replica: str, request: ChunkRequest) -> "Future[RenderReply]":
        sent = pickle.dumps(request)
        self.bytes_sent += len(sent)
        self.requests.append((replica, request))
        self.before_request(replica)
        answer: Future[RenderReply] = Future()
        if replica in self.silent:
            return answer
        if replica in self.dead:
            answer.set_exception(RenderReplicaLost("it died"))
            return answer

        def deliver(rendered: "Future[RenderReply]") -> None:
            self.before_answer(replica, request)
            if replica in self.dead:
                answer.set_exception(RenderReplicaLost("it died"))
            else:
                answer.set_result(pickle.loads(pickle.dumps(rendered.result())))

        self.hosts[replica].render(pickle.loads(sent)).add_done_callback(deliver)
        return answer

    def keep_voice(self, replica: str, flow_prompt: FlowPrompt) -> "Future[None]":
        self.voices_sent.append((replica, flow_prompt.id))
        self.hosts[replica].keep_voice(pickle.loads(pickle.dumps(flow_prompt)))
        answer: Future[None] = Future()
        answer.set_result(None)
        return answer

    def release(self, replica: str, decoder: str, sentence: int) -> None:
        self.released.append((replica, sentence))
        self.hosts[replica].release(decoder, sentence)

    def rendered_by(self) -> list[str]:
        """The replica of each request."""
        return [replica for replica, _ in self.requests]

    def close(self) -> None:
        for host in self.hosts.values():
            host.close()
