"""The phones of the call bench: calls that a busy gateway refuses are dialled again."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from uuid import UUID, uuid4

import pytest

from shared.calls.peers.wires import ALL_WIRES
from vivavoce.gateway.cli.bench.load_generator import RedialPolicy, dial_calls
from vivavoce.gateway.cli.phones.received_audio import ReceivedCall
from vivavoce.gateway.cli.phones.simulated_phones import CallRefused, PhoneFailed

AT_ONCE = RedialPolicy(answer_s=0.0, pause_s=0.0, interval_s=0.0)


class BusyPhones:
    """Phones of a gateway that refuses the first calls: at the handshake, or by hanging up later."""

    def __init__(self, refused: int, *, hangs_up: bool) -> None:
        self.refused = refused
        self.dialled = self.open_calls = 0
        self._hangs_up = hangs_up

    def dial(self, *, digits: str = "") -> UUID:
        self.dialled += 1
        if self.dialled > self.refused:
            self.open_calls += 1
        elif not self._hangs_up:
            raise CallRefused("the gateway refused the call")
        return uuid4()

    def run(self, until: float) -> None: ...

    def close(self) -> None: ...

    def require_protocol(self) -> None: ...

    def received_calls(self) -> list[ReceivedCall]:
        return []


@pytest.mark.parametrize("hangs_up", [False, True])
def test_refused_calls_are_dialled_again_until_all_are_up(hangs_up: bool) -> None:
    phones = BusyPhones(7, hangs_up=hangs_up)
    assert dial_calls(phones, 4, 0.0, AT_ONCE) == 7
    assert (phones.open_calls, phones.dialled) == (4, 11)


def test_a_gateway_that_keeps_refusing_calls_fails_the_phones() -> None:
    phones = BusyPhones(1_000, hangs_up=False)
    policy = RedialPolicy(answer_s=0.0, pause_s=0.0, max_s=0.0)
    with pytest.raises(PhoneFailed, match="the gateway refused 4 of 4 calls for 0 s"):
        dial_calls(phones, 4, 0.0, policy)


def test_refused_calls_are_left_out_if_they_are_dialled_once() -> None:
    phones = BusyPhones(3, hangs_up=True)
    assert dial_calls(phones, 4, 0.0, redial=None) == 3
    assert (phones.open_calls, phones.dialled) == (1, 4)


@contextmanager
def http_server(status: int) -> Iterator[int]:
    """Answer every request with a status; yields the port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-length", "0")
            self.send_header("connection", "close")
            self.end_headers()

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("over", ["websocket", "twilio", "rtp"])
@pytest.mark.parametrize(("status", "is_busy"), [(503, True), (404, False)])
def test_an_answer_of_503_is_a_refusal_and_any_other_a_failure(over: str, status: int, is_busy: bool) -> None:
    with http_server(status) as port:
        phones = ALL_WIRES[over]("127.0.0.1", port)
        with pytest.raises(PhoneFailed) as failure:
            phones.dial()
        assert isinstance(failure.value, CallRefused) == is_busy
        assert phones.open_calls == 0
        phones.close()
