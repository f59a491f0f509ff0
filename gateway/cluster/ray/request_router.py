"""The routing of calls to the replica that they name, as Ray Serve does it in the gateway's process.

Every call of a gateway has the id of its replica as the first argument. A replica that Serve is stopping
stays reachable until it has ended, so that its streams still get their text.
"""

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica


class NamedReplicaRouter(RequestRouter):  # type: ignore[misc]  # Serve has no types here
    """Sends a call to the replica that it names. A broadcast reaches the replicas that take streams."""

    def initialize_state(self, **_: object) -> None:
        """Begin without replicas."""
        self._running: set[ReplicaID] = set()

    @property
    def curr_replicas(self) -> dict[ReplicaID, RunningReplica]:
        """The replicas that Serve is not stopping; broadcasts go there."""
        return {key: replica for key, replica in self._replicas.items() if key in self._running}

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Take Serve's list of running replicas, and keep the others until they are known to be dead."""
        self._running = {replica.replica_id for replica in replicas}
        stopping = [replica for key, replica in self._replicas.items() if key not in self._running]
        super().update_replicas([*replicas, *stopping])

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """The named replica. If it is gone, any other one, which then raises ``ReplicaLost`` at once."""
        name = pending_request.args[0] if pending_request and pending_request.args else None
        named = [each for each in candidate_replicas if each.replica_id.unique_id == name]
        return [named or candidate_replicas]
