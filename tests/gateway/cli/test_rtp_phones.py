"""``vivavoce phone --over rtp`` against a gateway in its own process."""

from urllib.parse import urlsplit

import pytest

from vivavoce.gateway.cli.bench.processes import run_server_process
from vivavoce.gateway.cli.commands.phone.calls import listen
from vivavoce.gateway.cli.phones.simulated_phones import PhoneFailed
from vivavoce.gateway.cli.phones.wires import MAKE_PHONES


@pytest.mark.slow
def test_phones_over_rtp_hear_the_keys_that_they_press() -> None:
    with run_server_process("--agent", "keys") as url:
        address = urlsplit(url)
        assert address.hostname and address.port
        rtp = MAKE_PHONES["rtp"]
        report = listen(address.hostname, address.port, seconds=6.0, calls=2, dtmf="7", make_phones=rtp)
    for call in report.calls:
        assert call.sample_rate == 8000
        assert call.packets > 200
        assert call.speech_s > 0.3


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(PhoneFailed, match=r"127\.0\.0\.1:1 "):
        listen("127.0.0.1", 1, make_phones=MAKE_PHONES["rtp"])
