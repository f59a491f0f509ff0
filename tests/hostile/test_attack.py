"""A server under hostile messages on all wires, beside a live call and a live stream."""

import asyncio

import pytest

from hostile.run import attack

_BUSY_WIRES = ("audiosocket", "carriers", "dashscope", "stream", "clients", "calls")
_RARE_WIRES = ("strangers", "rtp", "crossing")


@pytest.mark.slow
def test_a_server_withstands_hostile_messages_on_all_wires() -> None:
    report = asyncio.run(attack(4_000, seed=1))
    assert report.findings == []
    assert report.tracebacks == 0
    assert min(report.sent[wire] for wire in _BUSY_WIRES) > 400
    assert min(report.sent[wire] for wire in _RARE_WIRES) > 30
    assert report.answers[200] > 0 and report.answers[400] > 0
    assert report.live_utterances > 0 and report.live_requests > 0
    assert report.open_files[-1] <= report.open_files[0] + 11  # connections that clients keep
    assert report.log_lines < report.messages
