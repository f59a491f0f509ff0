"""Runs a command in a network of its own and prints each name that it looks up and each outside address.

The network has a loopback interface only, to which all addresses lead. Needs Linux, ``unshare`` and ``ip``.
"""

import ipaddress
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

SEEN = "seen: "  # begins a line of what the network saw; other lines are the command's own
_NAMESPACE = ("unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
_SETUP = """set -e
ip link set lo up
ip route add local 0.0.0.0/0 dev lo
ip -6 route add local ::/0 dev lo || true
mount --bind {resolver} /etc/resolv.conf
exec {command}
"""
_ALL_PROTOCOLS = 3
_IPV4, _IPV6 = 0x0800, 0x86DD
_UDP, _DNS_PORT = 17, 53


def can_isolate() -> bool:
    """Whether this user may make a network here."""
    if not shutil.which("unshare") or not shutil.which("ip"):
        return False
    return subprocess.run([*_NAMESPACE, "ip", "link", "set", "lo", "up"], capture_output=True).returncode == 0


@contextmanager
def isolated(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """Run a command in a new folder, which is its home too; the pipe ``stdout`` has all lines."""
    folder.mkdir()
    resolver = folder / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.1\n")
    watched = shlex.join([sys.executable, "-m", "shared.isolated_network", *command])
    with (
        TemporaryDirectory() as temporary,  # a short path, for the sockets of Ray
        subprocess.Popen(
            [*_NAMESPACE, "sh", "-c", _SETUP.format(resolver=shlex.quote(str(resolver)), command=watched)],
            cwd=folder,
            env={
                **environment,
                "HOME": str(folder),
                "XDG_CACHE_HOME": str(folder / "cache"),
                "TMPDIR": temporary,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def lines_until(process: subprocess.Popen[str], part: str) -> list[str]:
    """Read the lines up to one that contains ``part``, or to the end."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if part in line:
            break
    return lines


def _watch(packets: socket.socket) -> None:
    """Print what the packets on the loopback interface are for, each thing once."""
    printed = set()
    while True:
        packet, (_, protocol, *_) = packets.recvfrom(65_535)
        sight = _sight(protocol, packet)
        if sight and sight not in printed:
            printed.add(sight)
            print(f"{SEEN}{sight}", flush=True)


def _sight(protocol: int, packet: bytes) -> str | None:
    """The name that a packet asks for, or its destination beyond loopback."""
    if protocol == _IPV4:
        header, transport, destination = 4 * (packet[0] & 15), packet[9], packet[16:20]
    elif protocol == _IPV6:
        header, transport, destination = 40, packet[6], packet[24:40]
    else:
        return None
    if transport == _UDP and int.from_bytes(packet[header + 2 : header + 4]) == _DNS_PORT:
        return _asked_name(packet[header + 8 :])
    address = ipaddress.ip_address(destination)
    return None if address.is_loopback or address.is_multicast else str(address)


def _asked_name(message: bytes) -> str:
    at, labels = 12, []
    while message[at]:
        labels.append(message[at + 1 : at + 1 + message[at]].decode())
        at += 1 + message[at]
    return ".".join(labels)


if __name__ == "__main__":
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ALL_PROTOCOLS))
    threading.Thread(target=_watch, args=(opened,), daemon=True).start()
    sys.exit(subprocess.run(sys.argv[1:], stderr=subprocess.STDOUT).returncode)
