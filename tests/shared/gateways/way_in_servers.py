"""The servers of single ways in, of a running gateway."""

from vivavoce.gateway.calls.ways_in.audiosocket.call_server import AudioSocketCallServer
from vivavoce.gateway.calls.ways_in.browser.calls import BrowserCalls
from vivavoce.gateway.serve import Gateway


def browser_calls(gateway: Gateway) -> BrowserCalls:
    """Return the browser calls of a gateway."""
    server = gateway.calls.opened["browser"].server
    assert isinstance(server, BrowserCalls)
    return server


def audiosocket_calls(gateway: Gateway) -> AudioSocketCallServer:
    """Return the AudioSocket calls of a gateway."""
    server = gateway.calls.opened["audiosocket"].server
    assert isinstance(server, AudioSocketCallServer)
    return server
