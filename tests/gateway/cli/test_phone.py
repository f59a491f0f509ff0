"""The simulated phone against scripted servers on loopback."""

import json
import socket
import threading
import time
import wave
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from vivavoce.gateway.cli import main
from vivavoce.gateway.cli.bench.processes import run_server_process
from vivavoce.gateway.cli.commands.phone.calls import listen
from vivavoce.gateway.cli.commands.phone.report import PhoneReport
from vivavoce.gateway.cli.phones.audiosocket_phones import PhoneSimulator
from vivavoce.gateway.cli.phones.simulated_phones import PhoneFailed, check_digits
from vivavoce.tts_engine.errors import BadRequest

SILENCE = b"\x10\x01\x40" + bytes(320)
LOUD = b"\x10\x01\x40" + b"\x00\x20" * 160
HANG_UP = b"\x00\x00\x00"

Script = Callable[[socket.socket], None]


@contextmanager
def gateway(script: Script) -> Iterator[tuple[str, int]]:
    """Accepts calls and runs ``script`` on each in a thread of its own."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        threads: list[threading.Thread] = []

        def attend(call: socket.socket) -> None:
            with call:
                script(call)

        def accept() -> None:
            while True:
                try:
                    call, _ = listener.accept()
                except OSError:
                    return
                threads.append(threading.Thread(target=attend, args=(call,)))
                threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        yield listener.getsockname()
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()
        for thread in threads:
            thread.join()


def read_to_the_end(call: socket.socket) -> bytes:
    received = b""
    while data := call.recv(4096):
        received += data
    return received


def messages(received: bytes) -> list[tuple[int, bytes]]:
    found = []
    while received:
        length = int.from_bytes(received[1:3], "big")
        found.append((received[0], received[3 : 3 + length]))
        received = received[3 + length :]
    return found


def test_a_phone_sends_its_id_and_then_silence_every_20_ms() -> None:
    received: list[bytes] = []
    with gateway(lambda call: received.append(read_to_the_end(call))) as (host, port):
        report = listen(host, port, seconds=1.0)
    kinds = messages(received[0])
    assert kinds[0][0] == 0x01
    assert kinds[0][1].hex() == report.calls[0].call.replace("-", "")
    assert set(kinds[1:]) == {(0x10, bytes(320))}
    # Never faster than one every 20 ms; a machine that is busy may stop for most of the time.
    assert 10 <= len(kinds) - 1 <= report.calls[0].duration_s / 0.020 + 1


def test_digits_are_pressed_in_order() -> None:
    pressed: list[bytes] = []

    def script(call: socket.socket) -> None:
        received = b""
        while len(pressed) < 3 and (data := call.recv(4096)):
            received += data
            pressed[:] = [payload for kind, payload in messages(received) if kind == 0x03 and payload]

    with gateway(script) as (host, port):
        listen(host, port, seconds=30.0, dtmf="1#*")
    assert pressed == [b"1", b"#", b"*"]


def test_the_phone_records_what_arrives(tmp_path: Path) -> None:
    def script(call: socket.socket) -> None:
        call.recv(19)
        call.sendall(SILENCE + SILENCE + LOUD + LOUD + HANG_UP)

    out = tmp_path / "heard.wav"
    with gateway(script) as (host, port):
        (summary,) = listen(host, port, seconds=30.0, out=out).calls
    assert (summary.packets, summary.sample_rate, summary.speech_s) == (4, 8000, 0.04)
    assert summary.reason == "the gateway hung up"
    assert summary.first_packet_ms is not None and summary.first_audible_ms is not None
    assert summary.recording == str(out)
    with wave.open(str(out)) as recording:
        assert recording.readframes(640) == bytes(640) + b"\x00\x20" * 320
    assert len((tmp_path / "heard.packets.csv").read_text(encoding="utf-8").splitlines()) == 5


def test_a_packet_is_timed_when_it_arrives_not_when_it_is_read() -> None:
    sent = threading.Event()

    def script(call: socket.socket) -> None:
        call.recv(19)
        time.sleep(0.2)  # a kernel stamps packets a moment after the first socket has asked for it
        call.sendall(SILENCE)
        sent.set()

    with gateway(script) as (host, port):
        bank = PhoneSimulator(host, port)
        bank.dial()
        assert sent.wait(30)
        sent_at = time.monotonic()
        time.sleep(0.3)  # this thread is busy; the kernel is not
        bank.run(time.monotonic() + 30)
        bank.close()
        (heard,) = bank.received_calls()
    assert heard.packets[0].arrived_at < sent_at + 0.2


def test_several_recordings_are_numbered_and_separate(tmp_path: Path) -> None:
    def script(call: socket.socket) -> None:
        own = call.recv(19)[3:] * 20  # the call's UUID as audio
        call.sendall(b"\x10\x01\x40" + own)
        call.shutdown(socket.SHUT_WR)
        read_to_the_end(call)

    with gateway(script) as (host, port):
        report = listen(host, port, seconds=30.0, calls=3, out=tmp_path / "heard.wav")
    assert [summary.packets for summary in report.calls] == [1, 1, 1]
    for number, summary in enumerate(report.calls, start=1):
        assert summary.recording == str(tmp_path / f"heard-{number}.wav")
        with wave.open(str(summary.recording)) as recording:
            assert recording.readframes(160).hex() == summary.call.replace("-", "") * 20


def test_a_message_split_anywhere_is_received_whole() -> None:
    def script(call: socket.socket) -> None:
        call.recv(19)
        call.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(LOUD), 50):
            call.sendall(LOUD[start : start + 50])
            time.sleep(0.005)

    with gateway(script) as (host, port):
        (summary,) = listen(host, port, seconds=30.0).calls
    assert (summary.packets, summary.speech_s) == (1, 0.02)


def test_garbage_ends_the_call_with_a_reason_and_keeps_earlier_audio() -> None:
    def script(call: socket.socket) -> None:
        call.recv(19)
        call.sendall(LOUD + b"HTTP/1.1 400 Bad Request\r\n")

    with gateway(script) as (host, port):
        (summary,) = listen(host, port, seconds=30.0).calls
    assert summary.packets == 1
    assert summary.reason.startswith("the gateway broke the protocol: ")


@pytest.mark.parametrize(
    ("answer", "fault"),
    [(b"HTTP/1.1 400 Bad Request\r\n", "speaks HTTP, not AudioSocket"), (b"\xff\xff\xff", "does not speak")],
)
def test_a_server_of_another_protocol_is_one_sentence(answer: bytes, fault: str) -> None:
    def script(call: socket.socket) -> None:
        call.recv(19)
        call.sendall(answer)

    with gateway(script) as (host, port), pytest.raises(PhoneFailed, match=f"^{host}:{port} {fault}"):
        listen(host, port, seconds=30.0)


@pytest.mark.slow
def test_a_call_to_the_http_port_fails_and_names_the_protocol(capsys: pytest.CaptureFixture[str]) -> None:
    with run_server_process() as url, pytest.raises(SystemExit) as end:
        main.main(["phone", "127.0.0.1", url.rpartition(":")[2]])
    assert end.value.code == 1
    assert "speaks HTTP, not AudioSocket; give the AudioSocket port" in capsys.readouterr().err


def test_a_reset_is_distinguished_from_a_hang_up() -> None:
    def script(call: socket.socket) -> None:
        call.recv(19)
        call.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # close with a reset

    with gateway(script) as (host, port):
        (summary,) = listen(host, port, seconds=30.0).calls
    assert "connection" in summary.reason


def test_a_gateway_that_does_not_read_fails_the_call_as_in_asterisk() -> None:
    held = threading.Event()

    def script(call: socket.socket) -> None:
        held.wait(60)

    with gateway(script) as (host, port):
        bank = PhoneSimulator(host, port)
        bank.dial()
        line = next(iter(bank._phones.values()))
        while True:  # fill both socket buffers
            try:
                line.sock.send(bytes(65_536))
            except BlockingIOError:
                break
        bank.run(time.monotonic() + 30)
        bank.close()
        held.set()
        (heard,) = bank.received_calls()
    assert heard.reason == "the gateway stopped reading"


def test_a_failed_connection_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(PhoneFailed, match=rf"^cannot connect to 127.0.0.1:{port} .*vivavoce serve"):
        listen("127.0.0.1", port, seconds=1)


def test_a_recording_without_a_folder_is_refused_before_the_call(tmp_path: Path) -> None:
    with pytest.raises(PhoneFailed, match=r"^cannot write .*nowhere/heard.wav: the folder .* does not exist"):
        listen("127.0.0.1", 9, seconds=0.1, out=tmp_path / "nowhere" / "heard.wav")


def test_a_recording_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "heard.wav").mkdir()
    with (
        gateway(read_to_the_end) as (host, port),
        pytest.raises(PhoneFailed, match=r"^cannot write .*heard.wav: "),
    ):
        listen(host, port, seconds=0.1, out=tmp_path / "heard.wav")


@pytest.mark.parametrize(
    ("seconds", "calls", "dtmf", "complaint"),
    [(0, 1, "", "0 seconds"), (1, 0, "", "0 calls"), (1, 1, "12x", "got digit 'x'")],
)
def test_invalid_options_are_refused(seconds: float, calls: int, dtmf: str, complaint: str) -> None:
    with pytest.raises(BadRequest, match=complaint):
        listen("127.0.0.1", 9, seconds=seconds, calls=calls, dtmf=dtmf)


def test_every_key_of_a_phone_is_allowed() -> None:
    check_digits("0123456789*#ABCD")


def test_the_report_is_json_and_a_table() -> None:
    def script(call: socket.socket) -> None:
        call.recv(19)
        call.sendall(LOUD + HANG_UP)

    with gateway(script) as (host, port):
        report = listen(host, port, seconds=30.0, calls=2)
    calls = json.loads(report.as_json())["calls"]
    assert [call["packets"] for call in calls] == [1, 1]
    assert screen_of(report).count("the gateway hung up") == 2
    assert "first audible sample" in screen_of(PhoneReport(report.calls[:1]))


def screen_of(report: PhoneReport) -> str:
    screen = StringIO()
    report.print_table(Console(file=screen, width=100))
    return screen.getvalue()


def test_the_report_of_no_call_is_json() -> None:
    assert json.loads(PhoneReport(()).as_json()) == {"calls": []}
