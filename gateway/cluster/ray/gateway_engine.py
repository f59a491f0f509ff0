"""The replicas of a cluster as the engine of a gateway, by its settings."""

from ....tts_engine.engine import EngineConfig
from ....tts_engine.errors import BadRequest
from ....tts_engine.speech_engine import SpeechEngine
from ...configuration.settings import DEFAULT_NAME, Settings
from ...engine_settings import BundleTable
from .ray_engine import open_ray_engine
from .replica_settings import ReplicaSettings


async def open_cluster(
    address: str, bundle: BundleTable, settings: Settings, config: EngineConfig
) -> SpeechEngine:
    """Connect to the replicas. Raises BundleError, BadRequest, and MissingExtra without ray."""
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
