"""Trunks: where each is found, whether it has our registration, and which requests are its own."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from .....adapters.sip.digest import Credentials
from .....adapters.sip.endpoint import SipEndpoint
from .....adapters.sip.headers import SipSyntaxError, SipUri
from .....adapters.sip.message import SipRequest
from .....adapters.sip.registration import Account, Registration
from .....adapters.sip.transactions import SipFlow
from ....access.networks import AddressSet
from ....background_tasks import cancel_and_wait
from .resolver import SipResolver
from .settings import SipTrunkTable

logger = logging.getLogger(__name__)

_KEEP_ALIVE_S: Final = 25.0  # routers forget a way over UDP after 30 s and more
_LOOK_UP_S: Final = 300.0  # of a trunk that is not registered at
_RETRY_S: Final = 10.0  # after a look-up that failed


@dataclass(slots=True)
class SipTrunk:
    """One trunk of the settings.

    Args:
        note_name: takes a server's IP address, and what its certificate must name.
    """

    name: str
    table: SipTrunkTable
    endpoint: SipEndpoint
    resolver: SipResolver
    keep_alive: Callable[[SipFlow], None]
    note_name: Callable[[str, str], None]
    registration: Registration | None = None
    token: str = field(default_factory=lambda: secrets.token_hex(12))  # user of our Contact at the server
    _servers: list[SipFlow] = field(default_factory=list)
    _hosts: set[str] = field(default_factory=set)  # of its servers, also of former ones
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)
    _networks: AddressSet = field(init=False)

    def __post_init__(self) -> None:
        self._networks = AddressSet.parse(self.table.networks)

    @property
    def credentials(self) -> Credentials | None:
        """Of the account; None: it has no password."""
        table = self.table
        if table.password is None:
            return None
        return Credentials(table.login or table.user, table.password.get_secret_value())

    @property
    def server(self) -> SipFlow | None:
        """Where requests go; None: no server is known."""
        if self.registration is not None and self.registration.flow is not None:
            return self.registration.flow
        return self._servers[0] if self._servers else None

    def avoid(self, server: SipFlow) -> None:
        """Take a server last that did not take a call, until the servers are looked up again."""
        if server in self._servers:
            self._servers.remove(server)
            self._servers.append(server)

    @property
    def number(self) -> str:
        """That our calls show."""
        return self.table.number or self.table.user or "anonymous"

    def address_of(self, user: str) -> SipUri:
        """Return the URI of a user or number at the trunk."""
        host = f"[{self.table.host}]" if ":" in self.table.host else self.table.host
        return SipUri(host, user, self.table.port)

    def start(self) -> None:
        """Look the servers up, and register if the trunk wants it."""
        table = self.table
        if table.user and table.expires_s:
            account = Account(self.address_of(table.user), table.expires_s, self.credentials)
            self.registration = Registration(
                self.endpoint, account, self._contact, self._look_up_for, self._report
            )
            self.registration.start()
        else:
            self._start(self._look_up_often())
        self._start(self._keep_alive())

    async def aclose(self) -> None:
        """Remove the registration."""
        if self.registration is not None:
            self.registration.stop()
        await cancel_and_wait(*self._tasks)

    def owns(self, request: SipRequest, flow: SipFlow) -> bool:
        """Return whether a request comes from the trunk: by its address, or by the Contact it alone knows."""
        if flow.host in self._hosts or flow.host in self._networks:
            return True
        try:
            return self.registration is not None and SipUri.parse(request.uri).user == self.token
        except SipSyntaxError:
            return False

    def _contact(self, flow: SipFlow) -> SipUri:
        return self.endpoint.contact(flow, self.token)

    def _look_up_for(self, take: Callable[[Sequence[SipFlow]], None]) -> None:
        async def look_up() -> None:
            await self._look_up()
            take(list(self._servers))

        self._start(look_up())

    async def _look_up(self) -> bool:
        table = self.table
        host, port = table.host, table.port
        if table.outbound_proxy is not None:
            host, port = _split(table.outbound_proxy)
        found = await self.resolver.find(host, port, table.transport)
        for flow in found:
            self._hosts.add(flow.host)
            self.note_name(flow.host, host)
        self._servers = found or self._servers
        return bool(found)

    async def _look_up_often(self) -> None:
        while True:  # names move
            wait_s = _LOOK_UP_S if await self._look_up() else _RETRY_S
            await asyncio.sleep(wait_s)

    async def _keep_alive(self) -> None:
        while True:
            if self.registration is not None and self.registration.flow is not None:
                self.keep_alive(self.registration.flow)
            await asyncio.sleep(_KEEP_ALIVE_S)

    def _report(self, registration: Registration) -> None:
        if registration.is_registered and registration.flow is not None:
            logger.info("SIP trunk %s: registered at %s:%d", self.name, *registration.flow.address)
        else:
            logger.warning("SIP trunk %s is not registered: %s", self.name, registration.problem)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("SIP trunk %s failed", self.name, exc_info=error)


def _split(address: str) -> tuple[str, int | None]:
    """Return host and port of ``host``, ``host:port`` or ``[IPv6]:port``."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and (":" not in host or host.startswith("[")):
        return host.strip("[]"), int(port)
    return address.strip("[]"), None


@dataclass(frozen=True, slots=True)
class OutgoingRoute:
    """How a target is reached."""

    uri: SipUri
    flow: SipFlow
    trunk: SipTrunk | None
    costs: bool  # whether the guard counts it
    others: "tuple[OutgoingRoute, ...]" = ()  # to more phones of the same user, which ring too

    @property
    def credentials(self) -> Credentials | None:
        """For challenges of the target."""
        return None if self.trunk is None else self.trunk.credentials

    @property
    def number(self) -> str:
        """That calls show."""
        return "vivavoce" if self.trunk is None else self.trunk.number
