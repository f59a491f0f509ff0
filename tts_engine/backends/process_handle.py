"""The parent's handle of one process that renders: how it starts, is asked, dies and is ended.

``process_child`` has the other end of its pipes. ``process`` starts another process when one has died.
"""

import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import util
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from ..errors import BundleError, SynthesisFailed, VivavoceError
from . import process_child
from .process_child import CloseMessage, ErrorMessage, PrepareMessage, ReadyMessage, StepMessage, StepReply

logger = logging.getLogger(__name__)

_MAX_WORKERS = 8  # reply pipes, created before the child reports how many workers it has
_EXIT_TIMEOUT_S = 5.0  # then the child is killed; it normally exits when its request pipe closes
_REAPED_S = 0.001


class VoiceProcess:
    """One process and its pipes. When it dies, ``wait_for_death`` or the last step of its pipes reaps it.

    Attributes:
        pid: process id.
        ready: its report after loading.
        memory_slots, next_preparation: as it reported last.
    """

    def __init__(self, load: bytes, niceness: int) -> None:
        context = multiprocessing.get_context("spawn")
        child_requests, requests = context.Pipe(duplex=False)
        pairs = [context.Pipe(duplex=False) for _ in range(_MAX_WORKERS)]
        replies, child_replies = [own_end for own_end, _ in pairs], [child_end for _, child_end in pairs]
        process = context.Process(
            target=process_child.child_main,
            args=(load, niceness, child_requests, child_replies),
            name="vivavoce-voice",
            daemon=True,
        )
        self._process, self._requests, self._replies = process, requests, replies
        self._lock = threading.Lock()
        self._steps = 0
        self._has_ended = False
        self._was_ended = threading.Event()  # by this process
        try:
            process.start()
        finally:
            for child_end in (child_requests, *child_replies):
                child_end.close()
        assert process.pid is not None
        self.pid = process.pid
        self._sentinel = os.dup(process.sentinel)  # of its own thread, which outlives the process
        # Ends the child even if the engine is never closed; multiprocessing's own clean-up would wait for it.
        self._finalizer = util.Finalize(
            self, _end_process, args=(process, requests, replies, self._was_ended), exitpriority=1
        )

    def wait_ready(self) -> None:
        """Wait until the process has loaded. Raises BundleError if it cannot."""
        try:
            self.ready = self._receive_ready()
        except VivavoceError:
            os.close(self._sentinel)
            raise
        self.memory_slots = self.ready.memory_slots
        self.next_preparation = self.ready.next_preparation

    def kill(self) -> None:
        """Kill the process if it runs; what waits for it notices."""
        with self._lock:
            if not self._has_ended and self._finalizer.still_active():
                self._process.kill()

    def wait_for_death(self) -> bool:
        """Wait until the process has ended; whether it died by itself. Called once, by one thread."""
        wait([self._sentinel])
        os.close(self._sentinel)
        self.has_ended()
        return not self._was_ended.is_set()

    def has_ended(self) -> bool:
        """Whether the process is dead and reaped, or was ended."""
        with self._lock:
            if not self._has_ended and not self._steps and not self._process.is_alive():
                self._record_death()
            return self._has_ended

    def step(
        self,
        worker: int,
        make_message: Callable[[], StepMessage | PrepareMessage],
        send_lock: threading.Lock,
    ) -> StepReply:
        """Send a step or a preparation and wait for its reply. Raises SynthesisFailed if the process died.

        send_lock: held while the message is made and sent, so that messages arrive in the order they are
        made.
        """
        with self._using_pipes():
            with send_lock:
                message = make_message()
                self._requests.send(message)
            reply: StepReply = self._replies[worker].recv()
            if reply.number != message.number:
                raise OSError(f"step {message.number} was answered with step {reply.number}")
            self.memory_slots, self.next_preparation = reply.memory_slots, reply.next_preparation
            return reply

    def close_slot(self, slot: int, send_lock: threading.Lock) -> None:
        """Tell the process that a slot is closed; does nothing if it has died."""
        with suppress(SynthesisFailed), self._using_pipes(), send_lock:
            self._requests.send(CloseMessage(slot))

    def end(self) -> None:
        """End the process. Called once no step is running."""
        with self._lock:
            self._has_ended = True
            self._finalizer()

    @contextmanager
    def _using_pipes(self) -> Iterator[None]:
        """Keep the pipes open inside the block. Raises SynthesisFailed if the process has died."""
        with self._lock:
            if self._has_ended:
                raise process_died()
            self._steps += 1
        died = False
        try:
            yield
        except (EOFError, OSError) as error:
            died = True
            logger.debug("the voice's process is ended: %s", error)
            raise process_died() from None
        finally:
            self._end_use(died)

    def _end_use(self, died: bool) -> None:
        with self._lock:
            self._steps -= 1
            self._has_ended = self._has_ended or died
            if self._has_ended and not self._steps:
                self._record_death()

    def _record_death(self) -> None:
        self._has_ended = True
        logger.error("the voice's process %d died: %s", self.pid, self._finalizer())
        self._was_ended.clear()  # set for a process that answered wrongly, which is to be replaced too

    def _receive_ready(self) -> ReadyMessage:
        try:
            message: ReadyMessage | ErrorMessage = self._replies[0].recv()
        except (EOFError, OSError):
            raise BundleError(f"the voice's process died as it started: {self._finalizer()}") from None
        if isinstance(message, ErrorMessage):
            self.end()
            raise message.to_exception()
        for unused in self._replies[len(message.workers) :]:
            unused.close()
        return message


def _end_process(
    process: SpawnProcess, requests: Connection, replies: Sequence[Connection], was_ended: threading.Event
) -> str:
    """End a process, dead or alive, and close its pipes; how it ended, for the log."""
    if process.is_alive():
        was_ended.set()
    requests.close()
    process.join(_EXIT_TIMEOUT_S)
    if process.is_alive():
        process.kill()
        process.join()
    for connection in replies:
        connection.close()
    code = _exit_code(process)
    if code is None:
        return "an unknown exit status"
    process.close()
    return f"signal {-code}" if code < 0 else f"exit status {code}"


def _exit_code(process: SpawnProcess) -> int | None:
    """Return the exit code of a process that has ended; None if it does not become known.

    Another thread that starts a process may be reaping this one: its code comes within microseconds.
    """
    give_up_at = time.monotonic() + _EXIT_TIMEOUT_S
    while (code := process.exitcode) is None and time.monotonic() < give_up_at:
        time.sleep(_REAPED_S)
    return code


def process_died() -> SynthesisFailed:
    """The error of a session that was open in a process that died."""
    return SynthesisFailed("the voice's process died")
