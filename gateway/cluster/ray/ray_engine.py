"""The replicas of a Ray cluster as an engine. Nothing here needs Ray but that it is installed."""

import importlib.util
from pathlib import Path

from ....tts_engine.engine import EngineConfig
from ....tts_engine.errors import BadRequest, MissingExtra
from ....tts_engine.speech_engine import SpeechEngine
from ...configuration.settings import DEFAULT_NAME, Settings
from ...engine_settings import BundleTable
from ..replicas.cluster_engine import ClusterEngine, StreamRouter
from .finding.messages import DiscoverySettings
from .finding.replica_directory import RayReplicas, check_address
from .replica_settings import ReplicaSettings


async def open_cluster(
    address: str, bundle: BundleTable, settings: Settings, config: EngineConfig
) -> SpeechEngine:
    """The replicas as the engine of a gateway, by its settings.

    Raises BundleError, BadRequest, and MissingExtra without ray.
    """
    if DEFAULT_NAME in settings.lexicons:
        raise BadRequest("lexicons.default: with the executor ray, name it in args of the cluster's file")
    replica = ReplicaSettings(
        bundle=bundle.folder,
        precision=bundle.precision,
        device=bundle.device,
        max_streams=settings.engine.max_streams,
        locale=settings.reading.locale,
    )
    return await open_ray_engine(address, replica, config, settings.voices.store)


async def open_ray_engine(
    address: str,
    local: ReplicaSettings,
    config: EngineConfig,
    voice_store: Path | None = None,
    routing: StreamRouter | None = None,
) -> ClusterEngine:
    """The replicas of a cluster as an engine.

    address: "auto" for the cluster that this machine belongs to, "HOST:PORT" for its head, or "local" for a
    cluster of this gateway with one replica of ``local``. voice_store: of the gateway's enrolled voices.
    Raises MissingExtra, BundleError and BadRequest.
    """
    if importlib.util.find_spec("ray") is None:
        raise MissingExtra("the executor ray", "ray")
    check_address(address)
    replicas = RayReplicas(DiscoverySettings(address, local))
    return await ClusterEngine.connect(
        replicas, config, voice_store=voice_store, within_s=60.0, routing=routing
    )
