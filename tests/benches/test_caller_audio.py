"""The bench of the caller's audio: its networks, and a short run."""

import numpy as np
import pytest

from benches.caller_audio import NetworkConditions, measure, receive, to_telephone
from shared.audio.tones import pitch_of
from vivavoce.adapters.audio.formats.g711 import ulaw_decode, ulaw_encode
from vivavoce.adapters.rtp.codec import CODECS
from vivavoce.adapters.rtp.connection import RtpConnection, RtpOptions

SPEECH = to_telephone((0.3 * np.sin(2 * np.pi * 500 * np.arange(24_000) / 24_000)).astype(np.float32))


def heard(network: NetworkConditions) -> tuple[RtpConnection, bytes]:
    connection = RtpConnection(RtpOptions(CODECS["ulaw"]))
    return connection, receive(connection, SPEECH, network, seed=7)


def test_a_good_network_passes_every_sample() -> None:
    connection, pcm = heard(NetworkConditions(0.0, 0.0))
    assert pcm.startswith(ulaw_decode(ulaw_encode(SPEECH)))
    assert connection.counters.lost == 0


def test_a_bad_network_loses_packets_that_are_concealed() -> None:
    connection, pcm = heard(NetworkConditions(0.2, 0.04))
    assert connection.counters.lost >= 5 and len(pcm) >= len(SPEECH) - 2 * 320
    assert pitch_of(pcm[:14_000], 8_000) == pytest.approx(500, abs=5)


@pytest.mark.slow
@pytest.mark.asr
def test_a_short_run_understands_both_networks() -> None:
    report = measure(2, NetworkConditions(0.05, 0.04))
    good, bad, above, *_ = (figure.value for figure in report.figures)
    assert good == 0 and above == bad <= 10
