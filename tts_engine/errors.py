"""The errors of the engine, one tree.

    VivavoceError
    ├── BadRequest            a request that is not allowed; the message says what is
    │   ├── UnknownVoice      no voice with that id
    │   ├── BadText           text that cannot be spoken: beyond a limit, for example
    │   │   ├── UnreadableText    the voice can read no word of it
    │   │   └── LanguageNotSpoken the voice does not speak its language
    │   └── StreamClosed      text pushed after end_input() or cancel()
    ├── Overloaded            no capacity now; carries a reason and the seconds after which to retry
    ├── BundleError           a voice's files are missing, damaged or of another version
    ├── MissingExtra          an optional dependency is not installed; the message holds the pip command
    ├── PlugInError           an entry point of another package cannot be used
    └── SynthesisFailed       the backend failed in one session; other sessions continue

A message says what was got and what is allowed. The gateway translates an error to a protocol's own error
once, at the protocol's edge. Each protocol core adds one ``ProtocolError`` for faults of the peer.
"""

import functools
from collections.abc import Callable

from .packaging.installation import install_command


class VivavoceError(Exception):
    """Base of all errors that vivavoce raises."""


class BadRequest(VivavoceError):
    """A request is not allowed."""


class UnknownVoice(BadRequest):
    """No voice with that id is loaded."""


class BadText(BadRequest):
    """A text cannot be spoken, for example because it is over a limit."""


class UnreadableText(BadText):
    """A text has words, and the voice can read none of them."""

    def __init__(self) -> None:
        super().__init__("the voice can read no word of the text; allowed is the script of its language")

    def __reduce__(self) -> "tuple[type[UnreadableText], tuple[()]]":
        return UnreadableText, ()  # to be pickled


class LanguageNotSpoken(BadText):
    """The voice does not speak the language of a text."""


class StreamClosed(BadRequest):
    """The stream takes no more text."""


class Overloaded(VivavoceError):
    """There is no capacity for the request now.

    Attributes:
        reason: label for metrics and logs, such as ``"streams"`` or ``"compute"``.
        retry_after_s: seconds after which to retry.
    """

    def __init__(self, message: str, *, reason: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> "tuple[Callable[..., Overloaded], tuple[str]]":
        # To be pickled.
        return functools.partial(Overloaded, reason=self.reason, retry_after_s=self.retry_after_s), (
            str(self),
        )


class BundleError(VivavoceError):
    """The files of a voice are missing, damaged or of another version."""


class MissingExtra(VivavoceError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f"{what} needs the extra {extra!r}, which is not installed: {install_command(extra)}"
        )


class PlugInError(VivavoceError):
    """An entry point of another package cannot be used; the message names both."""


class SynthesisFailed(VivavoceError):
    """The backend failed in one session."""
