"""The URL guard: refused URLs, and that it connects to the address that it checked."""

import asyncio
import base64
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from vivavoce.gateway.access import url_guard
from vivavoce.gateway.access.errors import UrlRefused
from vivavoce.gateway.access.url_guard import UrlGuard, UrlPolicy

CONTENT = b"RIFF" + bytes(1000)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers["Host"]))  # type: ignore[attr-defined]
        assert self.headers["Accept-Encoding"] == "identity"  # else the request fails
        if self.path.startswith("/to="):
            self.send_response(302)
            self.send_header("Location", self.path[4:])
            self.end_headers()
            return
        if self.path == "/missing":
            self.send_error(404)
            return
        if self.path == "/redirect-without-location":
            self.send_response(302)
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        if self.path == "/drip":
            self.server.stopped.wait(20)  # type: ignore[attr-defined]
            return
        for _ in range(1000 if self.path == "/endless" else 1):
            self.wfile.write(CONTENT)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.seen = []  # type: ignore[attr-defined]
    server.stopped = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stopped.set()  # type: ignore[attr-defined]
        server.shutdown()
        thread.join()
        server.server_close()


def fetch(url: str, policy: UrlPolicy | None = None, **names: Sequence[str]) -> bytes:
    async def resolver(host: str, port: int) -> Sequence[str]:
        if host in names:
            return names[host]
        raise OSError("unknown")

    guard = UrlGuard(policy or UrlPolicy(), resolver) if names else UrlGuard(policy or UrlPolicy())
    return asyncio.run(guard.fetch(url))


def policy_for(port: int, **changed: object) -> UrlPolicy:
    """Allow the test server; with a long timeout, as the machine may be busy."""
    hosts = frozenset({f"files:{port}"})
    return UrlPolicy(**{"allowed_hosts": hosts, "timeout_s": 60.0, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0177.0.0.1/",
        "http://0.0.0.0/",
        "http://[::1]/",
        "http://[::]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[fe80::1]/",
        "http://[fd00::1]/",
        "http://localhost/",
        "http://10.0.0.1/",
        "http://172.16.0.1/",
        "http://192.168.1.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://100.64.0.1/",
        "http://224.0.0.1/",
        "http://255.255.255.255/",
    ],
)
def test_no_form_of_a_private_address_is_fetched(url: str) -> None:
    with pytest.raises(UrlRefused, match=r"not on the public internet|no address|InvalidURL"):
        fetch(url)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("ftp://example.org/x", "scheme 'ftp'"),
        ("file:///etc/passwd", "scheme 'file'"),
        ("gopher://example.org/", "scheme 'gopher'"),
        ("/etc/passwd", "scheme ''"),
        ("", "scheme ''"),
        ("http://user:pass@example.org/", "user name"),
        ("http://example.org:22/", "port 22"),
        ("http://", "could not be fetched|no address"),
        ("http://[::1", "could not be fetched"),
        ("http://exa mple.org/", "could not be fetched|no address"),
        ("http://" + "a" * 300 + ".org/", "could not be fetched|no address"),
        ("http://nowhere.invalid/", "no address"),
    ],
)
def test_a_url_that_is_not_fetched_is_refused_with_a_reason(url: str, sentence: str) -> None:
    with pytest.raises(UrlRefused, match=sentence):
        fetch(url)


def test_a_name_with_one_private_address_among_public_ones_is_refused() -> None:
    with pytest.raises(UrlRefused, match="public internet"):
        fetch("http://mixed/", mixed=["93.184.216.34", "10.0.0.1"])


def test_a_listed_host_is_fetched_at_the_address_that_was_checked() -> None:
    with serving() as server:
        port = server.server_address[1]
        content = fetch(f"http://files:{port}/voice.wav", policy_for(port), files=["127.0.0.1"])
        assert content == CONTENT
        assert server.seen == [("/voice.wav", f"files:{port}")]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1/",
        "http://[::ffff:7f00:1]/",
        "http://2130706433/",
        "file:///etc/passwd",
        "//localhost/",
    ],
)
def test_a_redirect_is_checked_like_the_first_url(target: str) -> None:
    with serving() as server:
        port = server.server_address[1]
        with pytest.raises(UrlRefused, match=r"public internet|scheme|no address"):
            fetch(f"http://files:{port}/to={target}", policy_for(port), files=["127.0.0.1"])
        assert len(server.seen) == 1  # type: ignore[attr-defined]


def test_redirects_are_followed_up_to_a_limit() -> None:
    with serving() as server:
        port = server.server_address[1]
        url = f"http://files:{port}"
        assert fetch(f"{url}/to={url}/voice", policy_for(port), files=["127.0.0.1"]) == CONTENT
        with pytest.raises(UrlRefused, match="more than 3 times"):
            fetch(f"{url}/to=" * 5 + f"{url}/x", policy_for(port), files=["127.0.0.1"])


def test_too_many_bytes_too_much_time_and_an_error_status_are_refused() -> None:
    with serving() as server:
        port = server.server_address[1]
        url = f"http://files:{port}"
        with pytest.raises(UrlRefused, match="more than 5,000 bytes"):
            fetch(f"{url}/endless", policy_for(port, max_bytes=5_000), files=["127.0.0.1"])
        with pytest.raises(UrlRefused, match=r"over 0\.3 s"):
            fetch(f"{url}/drip", policy_for(port, timeout_s=0.3), files=["127.0.0.1"])
        with pytest.raises(UrlRefused, match="answered 404"):
            fetch(f"{url}/missing", policy_for(port), files=["127.0.0.1"])
        with pytest.raises(UrlRefused, match="answered 302"):
            fetch(f"{url}/redirect-without-location", policy_for(port), files=["127.0.0.1"])


def test_a_server_that_does_not_answer_is_refused_with_the_error() -> None:
    with pytest.raises(UrlRefused, match="could not be fetched: ConnectError"):
        fetch("http://files:1/", policy_for(1), files=["127.0.0.1"])


def test_lookups_that_take_long_leave_the_threads_of_the_event_loop_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = threading.Event()

    def look_up(*_: object, **__: object) -> list[object]:
        answered.wait(30)
        return []

    async def run() -> None:
        guard = UrlGuard(UrlPolicy(timeout_s=60.0))
        fetches = [asyncio.create_task(guard.fetch(f"http://slow-{number}/")) for number in range(40)]
        await asyncio.sleep(0.01)
        try:
            await asyncio.wait_for(asyncio.to_thread(lambda: None), 10)
        finally:
            answered.set()
        refusals = await asyncio.gather(*fetches, return_exceptions=True)
        assert {str(refusal) for refusal in refusals} == {"the URL's host has no address"}

    monkeypatch.setattr("socket.getaddrinfo", look_up)
    asyncio.run(run())


def test_a_data_url_is_decoded() -> None:
    encoded = base64.b64encode(CONTENT).decode()
    assert fetch(f"data:audio/wav;base64,{encoded}") == CONTENT
    assert fetch("DATA:,a%20b") == b"a b"


@pytest.mark.parametrize(
    ("url", "sentence"),
    [("data:x", "comma"), ("data:;base64,!", "base64"), ("data:," + "a" * 99, "more than")],
)
def test_an_invalid_or_too_long_data_url_is_refused(url: str, sentence: str) -> None:
    with pytest.raises(UrlRefused, match=sentence):
        fetch(url, UrlPolicy(max_bytes=50))


def test_a_data_url_is_decoded_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def decode(text: str) -> bytes:
        threads.append(threading.current_thread())
        return text.encode()

    monkeypatch.setattr(url_guard, "unquote_to_bytes", decode)
    assert fetch("data:,ab") == b"ab"
    assert threads != [threading.current_thread()]


def test_a_data_url_of_nothing_but_escapes_is_refused() -> None:
    with pytest.raises(UrlRefused, match="1,000,000 escapes"):
        fetch("data:," + "%41" * 1_000_001)
