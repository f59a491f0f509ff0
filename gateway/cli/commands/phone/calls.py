"""``vivavoce phone``: calls the gateway like Asterisk does, and records what arrives."""

import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from .....tts_engine.errors import BadRequest
from ...phones.received_audio import ReceivedCall
from ...phones.simulated_phones import PhoneFailed, check_digits
from ...phones.wires import AUDIOSOCKET, MAKE_PHONES, MakePhones, Phones
from .call_summary import ReceivedCallSummary, summarize_call, write_packet_times, write_wav
from .report import PhoneReport


def listen(
    host: str,
    port: int,
    *,
    seconds: float = 30.0,
    out: Path | None = None,
    calls: int = 1,
    dtmf: str = "",
    make_phones: MakePhones = MAKE_PHONES[AUDIOSOCKET],
    progress: Console | None = None,
) -> PhoneReport:
    """Make ``calls`` calls at once, listen for ``seconds`` or until the gateway hangs up, and report.

    ``make_phones`` is one of ``wires``. ``out`` names a WAV file; packet times go into a CSV file beside it
    (``heard.wav``, ``heard.packets.csv``). Recordings of several calls are numbered (``heard-1.wav``).
    Control-C hangs up early and still reports. ``progress`` shows a progress bar.

    Raises PhoneFailed if a connection fails, the server speaks another protocol or a recording cannot be
    written, BadRequest for invalid arguments.
    """
    _check_arguments(seconds, calls, dtmf)
    if out is not None and not out.parent.is_dir():
        raise PhoneFailed(f"cannot write {out}: the folder {out.parent} does not exist")
    phones = make_phones(host, port)
    try:
        _run_calls(phones, seconds, calls, dtmf, progress or Console(quiet=True))
    except KeyboardInterrupt:
        pass  # hanging up early is a normal end of a call
    finally:
        phones.close()
    phones.require_protocol()
    return PhoneReport(
        tuple(
            _summarize_and_save(heard, path)
            for heard, path in _with_recording_paths(phones.received_calls(), out)
        )
    )


def _check_arguments(seconds: float, calls: int, dtmf: str) -> None:
    if seconds <= 0:
        raise BadRequest(f"got {seconds} seconds; more than 0 is needed")
    if calls < 1:
        raise BadRequest(f"got {calls} calls; at least 1 is needed")
    check_digits(dtmf)


def _run_calls(phones: Phones, seconds: float, calls: int, dtmf: str, console: Console) -> None:
    for _ in range(calls):
        phones.dial(digits=dtmf)
    start = time.monotonic()
    columns = (TextColumn("listening to {task.fields[lines]} call(s)"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("", total=seconds, lines=calls)
        while phones.open_calls and (now := time.monotonic()) < start + seconds:
            phones.run(min(now + 0.5, start + seconds))
            bar.update(task, completed=time.monotonic() - start, lines=phones.open_calls, refresh=True)


def _with_recording_paths(
    heard: list[ReceivedCall], out: Path | None
) -> Iterator[tuple[ReceivedCall, Path | None]]:
    for number, received in enumerate(heard, start=1):
        if out is None or len(heard) == 1:
            yield received, out
        else:
            yield received, out.with_name(f"{out.stem}-{number}{out.suffix}")


def _summarize_and_save(heard: ReceivedCall, path: Path | None) -> ReceivedCallSummary:
    if path is None:
        return summarize_call(heard)
    try:
        write_wav(path, heard.packets)
        write_packet_times(path.with_suffix(".packets.csv"), heard)
    except OSError as error:
        raise PhoneFailed(f"cannot write {error.filename or path}: {error.strerror or error}") from error
    return summarize_call(heard, path)
