"""Some thousand broken messages; ``benches.sip_fuzz`` tries a million."""

from benches.sip_fuzz import SipFuzzer


def test_no_broken_message_raises() -> None:
    fuzzer = SipFuzzer(seed=7)
    fuzzer.run(3_000)
    assert fuzzer.faults == {}
    assert fuzzer.answers > 300
