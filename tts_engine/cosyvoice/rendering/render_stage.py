"""The render stage of a bundle: speech ids of sentences to samples, in this process or in another one.

How many sessions fit into device memory is counted in speech ids: the flow keeps state of a whole sentence.

    memory     |kept voices|voice + sentence|voice + sentence|voice + sentence|......|
    sessions                 open             open             one more         too little for another

A sentence counts with an expected length until it is longer. Its memory is free when it ends.
"""

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ....models.cosyvoice.config import FRAMES_PER_SPEECH_ID
from ....models.cosyvoice.flow.hop_schedule import SpeechIdChunk
from ....models.devices.planned_captures import CaptureQueue
from ...voice_kit.fault_isolation import FaultIsolation
from ..conditioning import FlowPrompt
from ..policy import CosyVoicePolicy


def max_sessions_in_memory(
    memory_ids: int, prepared_voice_ids: int, ids_by_session: Collection[int], new_session_ids: int
) -> int:
    """Sessions that may be open at once, open ones included; at least one.

    All sizes are speech ids. memory_ids: total room. prepared_voice_ids: taken by prepared voices.
    ids_by_session: taken by each open session. new_session_ids: expected for one more.
    """
    additional = (memory_ids - prepared_voice_ids - sum(ids_by_session)) // new_session_ids
    return max(1, len(ids_by_session) + additional)


Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class RenderInput:
    """A chunk to render. ids: all speech ids of the sentence so far, after the recording's tail."""

    render_state: Any  # of the sentence, made by the stage
    chunk: SpeechIdChunk
    ids: list[int]
    runs_dry_at: float | None = None  # as of ``SlotTurn``
    trace_id: str = "-"  # of the stream, for logs

    @property
    def length(self) -> int:
        """Number of speech ids in the chunk."""
        return self.chunk.stop - self.chunk.start


SessionSpeech = tuple[FlowPrompt, int]  # the voice of a session, and the speech ids of its sentence so far


class RenderStage(Protocol):
    """Renders the chunks of sentences.

    Attributes:
        workers: steps that may run at the same time, each on a thread of its own.
        captures: of recorded steps that are left.
    """

    workers: int
    captures: CaptureQueue

    def begin_sentence(self, flow_prompt: FlowPrompt, speed: float, noise: np.random.Generator) -> Any:
        """The state of a new sentence. noise: the session's generator, which the sentence advances.

        Raises MemoryError.
        """

    def render(
        self, render_inputs: Mapping[int, RenderInput], isolation: FaultIsolation
    ) -> dict[int, Samples]:
        """The samples of each chunk; sentences that fail are left out, and recorded in ``isolation``.

        Left out, too, are chunks that need more calls, which are the same again.
        """

    def free(self, render_state: Any) -> None:
        """Free the memory of a sentence that is not rendered further, in a step."""

    def release(self, render_state: Any) -> None:
        """Note that the result of a sentence is no longer wanted. Returns at once, also during a step."""

    def memory_slots(self, sessions: Sequence[SessionSpeech]) -> int:
        """Sessions that memory has room for, the given open ones included."""


class LocalRenderStage:
    """The flow and the vocoder in this process: one step at a time. runner: ``RenderRunner`` or its like.

    Attributes:
        memory_ids: speech ids for which there is memory.
        captures: the runner's.
    """

    workers = 1

    def __init__(self, runner: Any, policy: CosyVoicePolicy) -> None:
        self.runner = runner
        self.memory_ids: int = runner.memory_ids
        self.captures: CaptureQueue = runner.captures
        self._policy = policy

    def begin_sentence(self, flow_prompt: FlowPrompt, speed: float, noise: np.random.Generator) -> Any:
        """The runner's state of a new sentence. Raises MemoryError."""
        return self.runner.begin_sentence(flow_prompt, speed, noise)

    def render(
        self, render_inputs: Mapping[int, RenderInput], isolation: FaultIsolation
    ) -> dict[int, Samples]:
        """Render one chunk for every sentence, or a part of it: flow, speed change, vocoder."""
        runner = self.runner
        mels = isolation.run_batches(render_inputs, runner.flow_batch_key, runner.run_flow)
        vocoder_inputs = isolation.run_each(
            mels, lambda row, mel: runner.vocoder_input(render_inputs[row], mel)
        )
        return isolation.run_batches(vocoder_inputs, runner.vocoder_batch_key, runner.run_vocoder)

    def free(self, render_state: Any) -> None:
        """Free the runner's state."""
        self.runner.free(render_state)

    def release(self, render_state: Any) -> None:
        """Do nothing: a step is short, and the memory goes with the state."""

    def memory_slots(self, sessions: Sequence[SessionSpeech]) -> int:
        """As many as have room with their expected length."""
        policy, window = self._policy, self._policy.flow.window_frames
        max_ids = window // FRAMES_PER_SPEECH_ID if window else sys.maxsize
        voices = [self.runner.copied_voice_ids(flow_prompt) for flow_prompt, _ in sessions]
        ids_by_session = [
            min(max_ids, voice + max(policy.expected_ids, sentence_ids))
            for voice, (_, sentence_ids) in zip(voices, sessions, strict=True)
        ]
        new_session_ids = min(max_ids, max(voices, default=0) + policy.expected_ids)
        return max_sessions_in_memory(
            self.memory_ids, self.runner.prepared_voice_ids, ids_by_session, new_session_ids
        )
