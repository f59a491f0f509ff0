"""Patterns of destinations: what each wildcard stands for."""

import pytest

from vivavoce.gateway.access.destinations import matches_destination


@pytest.mark.parametrize(
    ("pattern", "target"),
    [
        ("PJSIP/1??", "PJSIP/100"),
        ("PJSIP/*", "PJSIP/alice"),
        ("PJSIP/*", "PJSIP/"),
        ("+49*", "+4930123456"),
        ("sip:*@pbx.example.org", "sip:100@pbx.example.org"),
        ("**", "Local/0900@from-internal/n"),
        ("**@trunk", "PJSIP/+49/x:1@trunk"),
        ("*70", "*70"),
        ("RTP/192.0.2.9:*", "RTP/192.0.2.9:4000"),
        ("RTP/", "RTP/"),
    ],
)
def test_a_pattern_allows_what_it_describes(pattern: str, target: str) -> None:
    assert matches_destination(pattern, target)


@pytest.mark.parametrize(
    ("pattern", "target"),
    [
        ("PJSIP/1*", "PJSIP/100/sip:elsewhere@192.0.2.1"),
        ("PJSIP/1*", "PJSIP/100&PJSIP/0900"),
        ("PJSIP/1??", "PJSIP/1000"),
        ("PJSIP/1??", "PJSIP/1/0"),
        ("PJSIP/*", "pjsip/100"),
        ("PJSIP/*", "xPJSIP/100"),
        ("2.0", "230"),
        ("sip:*@pbx.example.org", "sip:100@evil.example@pbx.example.org"),
        ("+49*", "+49;phone-context=evil"),
        ("RTP/192.0.2.9:*", "RTP/"),
        ("200", "200\n"),
        ("", "200"),
    ],
)
def test_a_pattern_allows_nothing_else(pattern: str, target: str) -> None:
    assert not matches_destination(pattern, target)
