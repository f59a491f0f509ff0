"""Provisional responses that their sender repeats until they are acknowledged, each in its early dialog.

    183, Require: 100rel, RSeq --> PRACK, RAck; a repeated one, or one that is out of order, is dropped

Source: RFC 3262.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .dialog import Dialog
from .digest import Credentials
from .headers import SipSyntaxError
from .message import SipRequest, SipResponse
from .requests import ChallengedRequest, SessionHost

RELIABLE: Final = "100rel"
_MAX_DIALOGS: Final = 16  # phones that a proxy asks at once


@dataclass(slots=True)
class _EarlyDialog:
    dialog: Dialog
    rseq: int  # of the last response
    description: bytes = b""  # the peer's


class ReliableProgress:
    """The early dialogs of one INVITE of ours."""

    def __init__(self, host: SessionHost, credentials: Credentials | None) -> None:
        self._host = host
        self._credentials = credentials
        self._early: dict[str, _EarlyDialog] = {}  # by the peer's tag

    def take(self, request: SipRequest, response: SipResponse, begin: Callable[[], Dialog]) -> bool:
        """Acknowledge a response if it asks for that; return whether it is news.

        begin: returns the dialog of a response; may raise SipSyntaxError.
        """
        rseq = response.headers.get("rseq")
        if RELIABLE not in response.headers.tokens("require") or not re.fullmatch(r"\d{1,10}", rseq):
            return True
        early = self._early.get(response.to.tag)
        if early is None:
            try:
                early = _EarlyDialog(begin(), int(rseq) - 1)
            except SipSyntaxError:
                return False
            if len(self._early) == _MAX_DIALOGS:
                return False
            self._early[response.to.tag] = early
        if int(rseq) != early.rseq + 1:
            return False
        early.rseq += 1
        early.description = response.body or early.description
        self._acknowledge(early.dialog, f"{rseq} {request.cseq} INVITE")
        return True

    def adopt(self, dialog: Dialog) -> bytes:
        """Continue the numbers of an early dialog in the one of the answer; return its description."""
        early = self._early.get(dialog.remote.tag)
        if early is None:
            return b""
        dialog.local_cseq = max(dialog.local_cseq, early.dialog.local_cseq)
        return early.description

    def _acknowledge(self, dialog: Dialog, rack: str) -> None:
        flow = dialog.next_hop

        def make(more: tuple[tuple[str, str], ...]) -> SipRequest:
            return dialog.request("PRACK", self._host.sent_by(flow), ("rack", rack), *more)

        credentials = self._credentials
        ChallengedRequest(
            self._host, make, flow, credentials, lambda request, response: None, lambda reason: None
        )
