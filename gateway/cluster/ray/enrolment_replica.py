"""The deployment ``enrolment``: replicas that encode recordings, so that none that speaks has to.

A voice or decode replica passes a gateway's recordings on to one of them, whichever is free: Ray Serve's own
router and its autoscaling by requests under way fit here, because every request is work of the same kind.
"""

import asyncio
import logging
import time
from collections.abc import Sequence

from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from ....tts_engine.errors import Overloaded, SynthesisFailed, VivavoceError
from ....tts_engine.metrics import Metrics
from ....tts_engine.process_limits import raise_descriptor_limit
from ....tts_engine.voices.recording import Recording
from ..replicas.cluster_metrics import replica_families
from ..replicas.messages import ReplicaMetrics, portable_error
from .replica_settings import ReplicaSettings, log_with_serve

logger = logging.getLogger(__name__)

_MAX_QUEUED = 32  # recordings that one voice or decode replica has waiting; then it refuses
_MAX_ENCODERS = 2  # replicas that are asked: a recording that ends one must not end all of them
_RETRY_AFTER_S = 2.0
_DRAIN_S = 60.0
_STAGE = "enrol"  # in the metric of steps


class EnrolmentReplica:
    """Encodes one voice at a time. It loads the encoders of a bundle and none of its networks."""

    async def __init__(self, settings: ReplicaSettings) -> None:  # type: ignore[misc]  # Ray Serve awaits it
        log_with_serve()
        raise_descriptor_limit()
        context = serve.get_replica_context()
        self._replica, self._deployment = context.replica_id.unique_id, context.deployment
        self._voices = await asyncio.to_thread(settings.open_encoders)
        self._metrics = Metrics()
        logger.info("replica %s encodes recordings", self._replica)

    async def encode(
        self, encoder_digest: str, recordings: Sequence[Recording], transcript: str
    ) -> bytes | VivavoceError:
        """The file of the prompt of a voice's recordings, or the error."""
        started_at = time.monotonic()
        try:
            return await asyncio.to_thread(self._encode, encoder_digest, recordings, transcript)
        except VivavoceError as error:
            self._metrics.failures.inc()
            return portable_error(error)
        finally:
            self._metrics.steps.labels(_STAGE).observe(time.monotonic() - started_at)

    def _encode(self, encoder_digest: str, recordings: Sequence[Recording], transcript: str) -> bytes:
        if encoder_digest != self._voices.encoder_digest:  # the deployments are being replaced
            raise SynthesisFailed("the enrolment replica has the encoders of another bundle; ask again")
        return self._voices.encode_recordings(recordings, transcript).to_bytes()

    async def report_metrics(self) -> ReplicaMetrics:
        """The metrics of the replica; for a broadcast."""
        return ReplicaMetrics(self._replica, self._deployment, replica_families(self._metrics))


class RayEncoders:
    """The running enrolment replicas behind a handle; ``RecordingEncoders`` of a voice or decode replica."""

    def __init__(self, handle: "DeploymentHandle[object]") -> None:
        self._encode = handle.options(method_name="encode")

    async def encode(self, encoder_digest: str, recordings: Sequence[Recording], transcript: str) -> bytes:
        """As ``RecordingEncoders.encode``; by another replica if one is lost."""
        for _ in range(_MAX_ENCODERS):
            try:
                answer: bytes | VivavoceError = await self._encode.remote(
                    encoder_digest, recordings, transcript
                )
            except (RayError, RayServeException) as error:
                logger.error("a recording was not encoded: %s", type(error).__name__)  # Ray's text is a page
                continue
            if isinstance(answer, VivavoceError):
                raise answer
            return answer
        raise Overloaded(
            f"no enrolment replica encoded the recording in {_MAX_ENCODERS} requests",
            reason="replicas",
            retry_after_s=_RETRY_AFTER_S,
        )


def bind_enrolment_replicas(settings: ReplicaSettings, name: str) -> serve.Application:
    """The deployment with that name, as an argument of the voice or decode deployment."""
    deployment = serve.deployment(
        name=name,
        max_ongoing_requests=1,  # an encoder takes one voice at a time
        max_queued_requests=_MAX_QUEUED,
        graceful_shutdown_timeout_s=_DRAIN_S,
        health_check_period_s=2.0,
        health_check_timeout_s=5.0,
    )(EnrolmentReplica)
    return deployment.bind(settings)
