"""Messages between a gateway and its discovery process, over pipes. Nothing here needs Ray.

    gateway -> process    DiscoverySettings, once; then a byte for each request for metrics
    process -> gateway    ClusterReport, every second; StageMetrics, when it was asked for them

A frame is its length in four bytes and a pickle.
"""

import pickle
import platform
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..... import __version__
from ...replicas.messages import ReplicaDescription, ReplicaMetrics
from ...replicas.replica_socket import LinkSecurity
from ..replica_settings import ReplicaSettings

HEADER = struct.Struct(">I")
PYTHON = ".".join(platform.python_version_tuple()[:2])
RELEASE = f"{__version__} with Python {PYTHON}"  # what must be equal at both ends of a link


@dataclass(frozen=True, slots=True)
class DiscoverySettings:
    """What a discovery process looks for."""

    address: str  # "auto", "HOST:PORT", or "local"
    local: ReplicaSettings  # of the replica of a cluster that is "local"


@dataclass(frozen=True, slots=True)
class FoundReplica:
    """A replica that takes streams. Its description is read only by the release that wrote it."""

    replica: str
    release: str
    description: bytes  # a pickled ReplicaDescription

    @classmethod
    def of(cls, description: ReplicaDescription) -> "FoundReplica":
        """A replica of this release."""
        return cls(description.replica, RELEASE, pickle.dumps(description, protocol=5))


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """What the cluster's head knows, or why it cannot be asked."""

    found: tuple[FoundReplica, ...] = ()
    deployment: str = ""  # that gateways call
    desired: int = 0  # replicas of it
    starting: int = 0
    max_replicas: int = 0  # by its autoscaling
    undescribed: frozenset[str] = frozenset()  # that run too; a gateway may know them from before
    fault: str = ""  # why there is no answer; then the rest is not known


@dataclass(frozen=True, slots=True)
class StageMetrics:
    """The metrics of the replicas that gateways do not call."""

    replicas: tuple[ReplicaMetrics, ...]


def frame(message: object) -> bytes:
    """A message as it is sent."""
    content = pickle.dumps(message, protocol=5)
    return HEADER.pack(len(content)) + content


def link_security(environment: Mapping[str, str]) -> LinkSecurity:
    """TLS for links, with the certificates that Ray is given; none if Ray has none. Raises OSError."""
    if environment.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return LinkSecurity()
    certificate, key = environment["RAY_TLS_SERVER_CERT"], environment["RAY_TLS_SERVER_KEY"]
    authority: Any = environment.get("RAY_TLS_CA_CERT")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority)
    client = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=authority)
    for context in (server, client):
        context.load_cert_chain(certificate, key)
        context.check_hostname = False  # Ray's certificates name no addresses; the authority is private
        context.verify_mode = ssl.CERT_REQUIRED
    return LinkSecurity(server, client)
