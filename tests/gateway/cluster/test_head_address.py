"""The head's address: a port that is taken, and peers that are no head of a cluster."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from vivavoce.gateway.cluster.ray.finding import head_address
from vivavoce.gateway.cluster.ray.finding.head_address import check_head, check_port_is_free
from vivavoce.tts_engine.errors import BadRequest, BundleError


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A program that accepts connections and answers the first one; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def test_a_taken_port_is_named_with_the_option_that_chooses_another() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(BadRequest, match=f"listens on port {port} of 127.0.0.1.*--port {port + 1}"):
            check_port_is_free("127.0.0.1", port)
    check_port_is_free("127.0.0.1", port)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"--host is 192\.0\.2\.1"):
        check_port_is_free("192.0.2.1", 6379)


def test_nothing_at_an_address_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(BundleError, match=f"no head of a Ray cluster answers at 127.0.0.1:{port}"):
        check_head(f"127.0.0.1:{port}")


def test_redis_at_the_address_is_no_head() -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(b"-ERR unknown command 'PRI'\r\n")

    with listening(answer) as port, pytest.raises(BundleError, match="is no head of a Ray cluster"):
        check_head(f"127.0.0.1:{port}")


def test_a_head_that_accepts_and_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_address, "_WITHIN_S", 0.05)
    silent = listening(lambda connection: time.sleep(0.3))
    with silent as port, pytest.raises(BundleError, match="no head of a Ray cluster answers"):
        check_head(f"127.0.0.1:{port}")


def test_a_grpc_server_passes() -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))

    with listening(answer) as port:
        check_head(f"127.0.0.1:{port}")
    check_head("auto")
