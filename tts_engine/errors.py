"""Every error that vivavoce raises on purpose, in one tree.

    VivavoceError
    ├── BadRequest            the caller asked for something that is not allowed; the message says what is
    │   ├── UnknownVoice
    │   ├── BadText
    │   └── StreamClosed      text pushed after end_input(), or audio asked of a cancelled stream
    ├── Overloaded            refused at once, with the reason and the seconds after which to try again
    ├── BundleError           a voice's files are missing, damaged or of another version
    ├── MissingExtra          an optional dependency is not installed; the message is the pip line
    └── SynthesisFailed       the backend failed inside one session; the others go on

Protocol cores add one ``ProtocolError`` each (peer's fault only); configuration errors are the gateway's.
Messages say what was got and what is allowed; errors are translated to a protocol's words once, at its edge.
"""


class VivavoceError(Exception):
    """Base of every error that vivavoce raises on purpose."""


class BadRequest(VivavoceError):
    """The caller asked for something that is not allowed."""


class UnknownVoice(BadRequest):
    """No voice of that id is loaded."""


class BadText(BadRequest):
    """The text is over a limit."""


class StreamClosed(BadRequest):
    """The stream takes no more text or gives no more audio."""


class Overloaded(VivavoceError):
    """The house is full.

    Attributes:
        reason: one word for metrics and logs, e.g. ``"streams"`` or ``"cost"``.
        retry_after_s: seconds after which trying again is sensible.
    """

    def __init__(self, message: str, *, reason: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after_s = retry_after_s


class BundleError(VivavoceError):
    """A voice's files are missing, damaged or of another version."""


class MissingExtra(VivavoceError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional dependency: pip install 'vivavoce[{extra}]'")


class SynthesisFailed(VivavoceError):
    """The backend failed inside one session."""
