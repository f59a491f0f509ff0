"""SSML parsing: text, prosody, and refusal of malformed documents and XML attacks."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.adapters.ssml.document import BadSsml
from vivavoce.adapters.ssml.input import parse_ssml
from vivavoce.adapters.ssml.markups.ssml.parser import MAX_ELEMENT_DEPTH
from vivavoce.adapters.ssml.markups.ssml.prosody import parse_prosody
from vivavoce.tts_engine.reading.prosody import Prosody


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ("<speak>Hello there.</speak>", "Hello there."),
        ('<?xml version="1.0"?><speak rate="1.2">Hello &amp; good day &#33;</speak>', "Hello & good day !"),
        ("<speak><!-- a note -->Hi</speak>", "Hi"),
        ("<speak><![CDATA[1 < 2]]></speak>", "1 < 2"),
        ('<speak>The <sub alias="World Wide Web">WWW</sub> grew</speak>', "The WWW grew"),
        ('<speak><sub alias="a">b<break time="2s"/><sub alias="c">d</sub></sub> e</speak>', "bd e"),
        ('<speak>One<break time="100ms"/> two</speak>', "One two"),
        ('<speak>One.<break time="100ms"/> two</speak>', "One. two"),
        ('<speak>One<break time="1.5s"/>two</speak>', "One two"),
        ("<speak>One<break/>two</speak>", "One two"),
        ('<speak>One<break time="0ms"/> two<break strength="none"/> three</speak>', "One two three"),
        ('<speak>One<break strength="weak"/> two</speak>', "One two"),
        ("<speak><s>One</s><s>Two!</s></speak>", "One. Two!"),
        ("<speak><p>One</p><p>Two</p></speak>", "One\n\nTwo"),
        ('<speak>Pin <say-as interpret-as="digits">0417</say-as> ok</speak>', "Pin 0417 ok"),
        ('<speak><say-as interpret-as="date">2026-01-02</say-as></speak>', "2026-01-02"),
        ('<speak><phoneme alphabet="py" ph="cao3">草</phoneme>地</speak>', "草地"),
        ("<speak>A <emphasis>new</emphasis> thing</speak>", "A new thing"),
        ("<speak/>", ""),
    ],
)
def test_a_document_is_converted_to_its_text(document: str, text: str) -> None:
    assert parse_ssml(document).text == text


@pytest.mark.parametrize(
    ("document", "prosody"),
    [
        ("<speak>Hi</speak>", Prosody()),
        ('<speak rate="1.2" pitch="0.8" volume="75">Hi</speak>', Prosody(1.2, 0.8, 1.5)),
        ('<speak><prosody rate="fast">Hi <break/> there</prosody>.</speak>', Prosody(speed=1.25)),
        ('<speak rate="2">\n <p><s><prosody rate="80%">Hi</prosody></s></p>\n</speak>', Prosody(speed=1.6)),
        ('<speak rate="2"><prosody volume="0">Hi</prosody> there</speak>', Prosody(speed=2.0)),
        ('<speak>Hi <prosody rate="2">there</prosody></speak>', Prosody()),
        ('<speak><prosody rate="2">Hi</prosody><sub alias="there">x</sub></speak>', Prosody()),
        ('<speak><prosody rate="2"/>Hi</speak>', Prosody()),
        ('<speak><prosody rate="2">Hi</prosody><prosody rate="2">there</prosody></speak>', Prosody()),
        ('<speak><prosody rate="2"><prosody rate="0.5">a</prosody> b</prosody></speak>', Prosody(speed=2.0)),
    ],
)
def test_prosody_applies_if_its_element_contains_all_of_the_text(document: str, prosody: Prosody) -> None:
    assert parse_ssml(document).prosody == prosody


@pytest.mark.parametrize(
    ("attribute", "value", "factor"),
    [
        ("rate", "1.5", 1.5),
        ("rate", " 150% ", 1.5),
        ("rate", "-20%", 0.8),
        ("rate", "x-slow", 0.5),
        ("pitch", "+12st", 2.0),
        ("pitch", "-12st", 0.5),
        ("pitch", "+10%", 1.1),
        ("pitch", "low", 0.87),
        ("volume", "100", 2.0),
        ("volume", "+20dB", 10.0),
        ("volume", "+6200dB", 1e10),
        ("volume", "-9999.5dB", 0.0),
        ("volume", "-150%", 0.0),
        ("volume", "silent", 0.0),
        ("range", "+20%", 1.2),
        ("range", "x-low", 0.4),
        ("range", "80Hz", 1.0),
        ("pitch", "600Hz", 1.0),
        ("rate", "+1", 1.0),
        ("rate", "3dB", 1.0),
        ("rate", "quickly", 1.0),
        ("rate", "1e9", 1.0),
        ("rate", "", 1.0),
    ],
)
def test_a_value_is_parsed_to_a_factor_and_an_unknown_value_to_1(
    attribute: str, value: str, factor: float
) -> None:
    prosody = parse_prosody({attribute: value})
    factors = {
        "rate": prosody.speed,
        "pitch": prosody.pitch,
        "volume": prosody.volume,
        "range": prosody.range,
    }
    assert factors == pytest.approx(dict.fromkeys(factors, 1.0) | {attribute: factor})


LAUGHS = "".join(f'<!ENTITY l{n} "{"".join(f"&l{n - 1};" for _ in range(10))}">' for n in range(1, 10))
ATTACKS = {
    "a billion laughs": f'<!DOCTYPE speak [<!ENTITY l0 "ha">{LAUGHS}]><speak>&l9;</speak>',
    "a file": '<!DOCTYPE speak [<!ENTITY x SYSTEM "file:///etc/passwd">]><speak>&x;</speak>',
    "a document type elsewhere": '<!DOCTYPE speak SYSTEM "http://127.0.0.1/x.dtd"><speak/>',
    "a parameter entity": '<!DOCTYPE speak [<!ENTITY % p SYSTEM "http://127.0.0.1/">%p;]><speak/>',
    "quadratic blow-up": f'<!DOCTYPE speak [<!ENTITY a "{"a" * 5_000}">]><speak>{"&a;" * 1_000}</speak>',
}


@pytest.mark.parametrize("document", ATTACKS.values(), ids=ATTACKS)
def test_a_document_type_is_refused(document: str) -> None:
    with pytest.raises(BadSsml, match="document type"):
        parse_ssml(document)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("<speak>Hello", "no element found"),
        ("<speak>Hello</spaek>", "mismatched tag"),
        ("<speak>&undefined;</speak>", "undefined entity"),
        ("<speaker>Hello</speaker>", "must be speak"),
        ("<speak a='1' a='2'/>", "duplicate attribute"),
        ("<speak/>tail", "junk after document element"),
        ("<speak>\x00</speak>", "not well-formed"),
        ("<speak>a < b</speak>", "not well-formed"),
        ('<speak><break time="soon"/></speak>', "break time"),
        ('<speak><break time="99999999999999s"/></speak>', "break time"),
        ("", "no element found"),
    ],
)
def test_malformed_ssml_is_refused_with_the_reason(document: str, reason: str) -> None:
    with pytest.raises(BadSsml, match=reason):
        parse_ssml(document)


def nested(depth: int) -> str:
    return "<speak>" + "<p>" * (depth - 1) + "deep" + "</p>" * (depth - 1) + "</speak>"


def test_the_nesting_depth_is_bounded() -> None:
    assert parse_ssml(nested(MAX_ELEMENT_DEPTH)).text == "deep"
    with pytest.raises(BadSsml, match="nested elements"):
        parse_ssml(nested(MAX_ELEMENT_DEPTH + 1))


@given(st.text())
def test_any_text_in_a_document_is_parsed_or_raises_bad_ssml(text: str) -> None:
    with suppress(BadSsml):
        parse_ssml(f"<speak>{text}</speak>")
