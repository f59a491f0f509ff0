"""Signatures of Twilio and Plivo. Expected values: the Python packages twilio 9.13.0 and plivo 4.63.0."""

import pytest

from vivavoce.adapters.media_streams.carriers.webhooks import is_valid, plivo_signature, twilio_signature

PLIVO_URL = "https://voice.example.org/v1/media-streams/plivo/answer"
QUERY = {"b": ["2"], "a": ["1"]}
BODY = {"From": ["1555"], "CallUUID": ["c-1"], "To": ["1666"]}


def test_twilio_signs_the_url_and_the_sorted_parameters() -> None:
    url = "https://voice.example.org/v1/media-streams/twilio/answer?x=1"
    body = {"CallSid": ["CA1"], "From": ["+15550001"], "To": ["+15550002"], "Digits": ["1234"]}
    assert twilio_signature("12345", url, body) == "MlvbHJI5NvntA8/mlnTov+AJ36U="


def test_twilio_signs_the_handshake_of_a_stream() -> None:
    url = "wss://voice.example.org/v1/media-streams/twilio"
    assert twilio_signature("12345", url, {}) == "R9WYy6lp8m2lXCjjcHLAm2tgSfE="


@pytest.mark.parametrize(
    ("query", "body", "signature"),
    [
        ({}, {}, "JuGp0NgvVXqVE7pBt/kAuqzotiuTsopmy3w8gXTQVm4="),
        (QUERY, {}, "AKSDHVUqVKmHOXdFyjENd0qybKVg1uSb5W2F/xZN/NI="),
        ({}, BODY, "0jLsafLK3navH8C9Teu2lJiaynfvSkbR5/8jNQzXbVo="),
        (QUERY, BODY, "XA7DUEUwSh50yQC01pArQ3Z+Vu/bBYMqn3l+YC3wYVE="),
    ],
)
def test_plivo_signs_the_url_the_parameters_and_a_nonce(
    query: dict[str, list[str]], body: dict[str, list[str]], signature: str
) -> None:
    assert plivo_signature("secret", PLIVO_URL, "nonce-1", query=query, body=body) == signature


def test_a_header_may_hold_several_signatures_and_a_wrong_one_is_refused() -> None:
    assert is_valid("abc=", "abc=")
    assert is_valid("abc=", "xyz=, abc=")
    assert not is_valid("abc=", "")
    assert not is_valid("abc=", "abd=")
    assert not is_valid("abc=", "é")
