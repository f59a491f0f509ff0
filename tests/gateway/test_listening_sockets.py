"""Bound sockets: options, addresses as text, and error messages."""

import socket

import pytest

from vivavoce.gateway import listening_sockets
from vivavoce.gateway.listening_sockets import (
    AddressUnavailable,
    address_unavailable,
    bind_socket,
    bound_address,
    format_address,
    limit_unidentified,
)


def test_a_bound_socket_names_its_protocol_so_that_asyncio_sends_without_delay() -> None:
    # asyncio turns Nagle's algorithm off for sockets that name their protocol, and for no others.
    with bind_socket("127.0.0.1", 0) as sock:
        assert sock.proto == socket.IPPROTO_TCP


def test_a_bound_socket_does_not_listen_yet() -> None:
    with bind_socket("127.0.0.1", 0) as sock, pytest.raises(ConnectionRefusedError):
        socket.create_connection(bound_address(sock), timeout=5)


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressUnavailable, match=rf"^127\.0\.0\.1:{port} is in use by another program"):
            bind_socket("127.0.0.1", port)


def test_another_failure_is_reported_with_the_system_s_message() -> None:
    error = address_unavailable(("::1", 80), PermissionError(13, "Permission denied"))
    assert str(error) == "Cannot listen on [::1]:80: Permission denied."


def test_an_ipv6_address_is_written_in_brackets() -> None:
    assert format_address(("::1", 8080)) == "[::1]:8080"
    assert format_address(("127.0.0.1", 8080)) == "127.0.0.1:8080"


def test_unidentified_connections_take_at_most_an_eighth_of_the_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening_sockets, "descriptor_limit", lambda: 200)
    connections = limit_unidentified("Test", 500)
    for number in range(100):
        connections.add(number, f"192.0.2.{number}", lambda: None)
    assert len(connections) == 25
