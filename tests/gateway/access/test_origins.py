"""What pages of other sites can load without an Origin: nothing, as browsers say so in Sec-Fetch-Site."""

import pytest

from vivavoce.gateway.access.errors import OriginRefused
from vivavoce.gateway.access.origins import Origins

HOST = {"host": "localhost:8080"}
FOREIGN = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}


@pytest.mark.parametrize(
    "headers",
    [
        FOREIGN,
        FOREIGN | {"sec-fetch-site": "same-site"},  # another port of this machine
        FOREIGN | {"sec-fetch-dest": "audio"},
        FOREIGN | {"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
        FOREIGN | {"referer": "https://evil.example.org/page"},
        FOREIGN | {"referer": "https://app.example.org.evil.net/"},
        FOREIGN | {"sec-fetch-site": "anything else"},
    ],
)
def test_what_an_element_of_another_sites_page_loads_is_refused(headers: dict[str, str]) -> None:
    origins = Origins(frozenset({"https://app.example.org"}), loopback_names_only=True)
    with pytest.raises(OriginRefused, match="other sites"):
        origins.check(HOST | headers)


@pytest.mark.parametrize(
    "headers",
    [
        {},  # a program, or an old browser
        {"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
        {"sec-fetch-site": "same-origin", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "audio"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
        FOREIGN | {"referer": "https://app.example.org/"},
        FOREIGN | {"origin": "https://app.example.org"},
    ],
)
def test_own_and_allowed_pages_links_and_programs_may(headers: dict[str, str]) -> None:
    Origins(frozenset({"https://app.example.org"}), loopback_names_only=True).check(HOST | headers)


PUBLIC = Origins(loopback_names_only=True, public_url="https://voice.example.org:8443")


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "voice.example.org"},  # a proxy may leave out the port
        {"host": "voice.example.org:8443", "origin": "https://voice.example.org:8443"},
        {"host": "VOICE.example.org", "origin": "https://voice.example.org:8443"},
        {"host": "127.0.0.1:8080", "origin": "https://voice.example.org:8443"},
        {"host": "localhost:8080"},
    ],
)
def test_behind_a_proxy_the_server_has_the_name_and_the_origin_of_its_public_url(
    headers: dict[str, str],
) -> None:
    PUBLIC.check(headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "voice.example.org.evil.net"},
        {"host": "example.org"},
        {"host": ""},
        {"host": "127.0.0.1:8080", "origin": "https://voice.example.org"},
        {"host": "127.0.0.1:8080", "origin": "http://voice.example.org:8443"},
        {"host": "127.0.0.1:8080", "origin": ""},
    ],
)
def test_no_other_name_or_origin_is_the_public_one(headers: dict[str, str]) -> None:
    with pytest.raises(OriginRefused):
        PUBLIC.check(headers)
    with pytest.raises(OriginRefused):
        Origins(loopback_names_only=True).check({"host": "", **headers})
