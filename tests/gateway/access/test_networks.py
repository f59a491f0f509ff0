"""Which addresses are public, the same on every Python, and sets of addresses."""

import pytest

from vivavoce.gateway.access.networks import AddressSet, is_public

_PUBLIC = (
    "93.184.216.34",
    "8.8.8.8",
    "100.63.255.255",
    "100.128.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "223.255.255.255",
    "2606:2800:220:1::1",
    "2001:4860:4860::8888",
    "2a00:1450:4001::1",
    "3ffe::1",
    "64:ff9b::808:808",
)
_NOT_PUBLIC = (
    "",
    "x",
    "1.2.3",
    "0177.0.0.1",
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "127.0.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "192.0.0.8",
    "192.0.2.1",
    "192.168.0.1",
    "198.19.255.255",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::8.8.8.8",
    "::ffff:10.0.0.1",
    "::ffff:8.8.8.8",
    "::ffff:0:127.0.0.1",
    "::ffff:0:8.8.8.8",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "64:ff9b:1::808:808",
    "100::1",
    "2001::1",
    "2001:0:7f00:1::",
    "2001:2::1",
    "2001:10::1",
    "2001:db8::1",
    "2002:a00:1::",
    "2002:808:808::1",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "fc00::1",
    "fd12::1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "feff::1",
    "ff02::1",
)


@pytest.mark.parametrize("address", _PUBLIC)
def test_a_public_address_is_recognized(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", _NOT_PUBLIC)
def test_any_other_address_is_not_public(address: str) -> None:
    assert not is_public(address)


def test_pythons_own_verdict_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older versions take fec0::1 and 3fff::1 for global, newer ones do not."""
    for kind in ("IPv4Address", "IPv6Address"):
        for verdict in ("is_global", "is_private", "is_reserved", "is_site_local"):
            monkeypatch.delattr(f"ipaddress.{kind}.{verdict}", raising=False)
    assert is_public("8.8.8.8") and is_public("2606:4700::1") and not is_public("fec0::1")


def test_a_set_has_addresses_networks_and_mapped_addresses() -> None:
    addresses = AddressSet.parse(["127.0.0.1", "10.0.0.0/8", "2001:db8::/32"])
    for member in ("127.0.0.1", "::ffff:127.0.0.1", "10.9.9.9", "2001:db8::7"):
        assert member in addresses
    for other in ("127.0.0.2", "11.0.0.1", "2001:db9::1", "x", "", "127.0.0.1, 10.0.0.1"):
        assert other not in addresses


def test_a_set_refuses_text_that_is_no_address() -> None:
    with pytest.raises(ValueError, match="example"):
        AddressSet.parse(["proxy.example.org"])
