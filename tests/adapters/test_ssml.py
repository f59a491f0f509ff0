"""SSML in, the text that is said out; and what is not SSML, or is an attack, refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vivavoce.adapters.ssml import DEEPEST, BadSsml, spoken_text


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ("<speak>Hello there.</speak>", "Hello there."),
        ('<?xml version="1.0"?><speak rate="1.2">Hello &amp; good day &#33;</speak>', "Hello & good day !"),
        ("<speak><!-- a note -->Hi</speak>", "Hi"),
        ("<speak><![CDATA[1 < 2]]></speak>", "1 < 2"),
        ('<speak>The <sub alias="World Wide Web">WWW</sub> grew</speak>', "The World Wide Web grew"),
        ('<speak><sub alias="a">b<break time="2s"/><sub alias="c">d</sub></sub> e</speak>', "a e"),
        ('<speak>One<break time="100ms"/> two</speak>', "One, two"),
        ('<speak>One.<break time="100ms"/> two</speak>', "One. two"),
        ('<speak>One<break time="1.5s"/>two</speak>', "One\n\ntwo"),
        ("<speak>One<break/>two</speak>", "One\n\ntwo"),
        ('<speak>One<break time="0ms"/> two<break strength="none"/> three</speak>', "One two three"),
        ('<speak>One<break strength="weak"/> two</speak>', "One, two"),
        ("<speak><s>One</s><s>Two!</s></speak>", "One.Two!"),
        ("<speak><p>One</p><p>Two</p></speak>", "One\n\nTwo"),
        ('<speak>Pin <say-as interpret-as="digits">0417</say-as> ok</speak>', "Pin 0 4 1 7 ok"),
        ('<speak><say-as interpret-as="date">2026-01-02</say-as></speak>', "2026-01-02"),
        ('<speak><phoneme alphabet="py" ph="cao3">草</phoneme>地</speak>', "草地"),
        ("<speak>A <emphasis>new</emphasis> thing</speak>", "A new thing"),
        ("<speak/>", ""),
    ],
)
def test_a_document_says_its_text(document: str, text: str) -> None:
    assert spoken_text(document) == text


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
        spoken_text(document)


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
def test_what_is_not_ssml_is_refused_with_the_reason(document: str, reason: str) -> None:
    with pytest.raises(BadSsml, match=reason):
        spoken_text(document)


def nested(depth: int) -> str:
    return "<speak>" + "<p>" * (depth - 1) + "deep" + "</p>" * (depth - 1) + "</speak>"


def test_depth_is_bounded() -> None:
    assert spoken_text(nested(DEEPEST)) == "deep"
    with pytest.raises(BadSsml, match="inside each other"):
        spoken_text(nested(DEEPEST + 1))


@given(st.text())
def test_any_text_in_a_document_is_said_or_refused(text: str) -> None:
    with suppress(BadSsml):
        spoken_text(f"<speak>{text}</speak>")
