"""Starts the services of docker-compose.yml together, without a container engine, and tries them.

    sudo PYTHONPATH=tests .venv/bin/python tests/deploy/start_services.py

Each service is Debian's program of it, with compose's commands, variables, files and addresses, in a network
and a file system of its own. The domain is localhost, for which Caddy signs a certificate itself. Needs
caddy, coturn, prometheus and redis-server. Grafana is not in Debian: ``test_image`` checks what it is given.
"""

import asyncio
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml
from aioice import stun, turn

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "examples" / "deploy"
COMPOSE: Final[dict[str, Any]] = yaml.safe_load((DEPLOY / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: Final[dict[str, Any]] = COMPOSE["services"]
VARIABLES: Final = {
    "DOMAIN": "localhost",
    "PUBLIC_IP": "127.0.0.1",
    "TURN_SECRET": "0123456789abcdef",
    "REDIS_URL": "redis://redis:6379/0",
}
GATEWAY: Final = (sys.executable, "-c", "from vivavoce.gateway.cli import run; run()")
ADDRESSES: Final = {
    **{name: SERVICES[name]["networks"]["inside"]["ipv4_address"] for name in ("gateway", "caddy")},
    "prometheus": "172.30.0.4",
    "redis": "172.30.0.5",
}
# coturn listens on a loopback interface only when told so; here there is no other.
LOOPBACK: Final = (f"--listening-ip={ADDRESSES['caddy']}", f"--relay-ip={ADDRESSES['caddy']}")
TIMEOUT_S: Final = 60.0
TURN_REFUSES: Final = 403


def expanded(text: str) -> str:
    """As compose replaces variables."""
    return re.sub(r"\$\{(\w+)(?::-[^}]*)?\}", lambda found: VARIABLES[found[1]], text)


def variables_of(service: str) -> dict[str, str]:
    """What compose sets for a service, and for the gateway its image before that."""
    dockerfile = (DEPLOY / "image" / "Dockerfile").read_text(encoding="utf-8")
    image = re.findall(r"(VIVAVOCE_\w+)=(\S+)", dockerfile) if service == "gateway" else []
    return {**dict(image), **{k: expanded(v) for k, v in SERVICES[service].get("environment", {}).items()}}


def command_of(service: str) -> list[str]:
    return [expanded(word) for word in SERVICES[service]["command"]]


def make_place(folder: Path) -> None:
    """Give this network compose's addresses and names, and this file system the paths of its volumes."""
    run("ip", "link", "set", "lo", "up")
    for address in ADDRESSES.values():
        run("ip", "address", "add", f"{address}/24", "dev", "lo")
    for path in ("/etc", "/var/lib"):  # changes of it are kept in memory
        layers = [folder / "layers" / path.strip("/").replace("/", "-") / name for name in ("upper", "work")]
        for layer in layers:
            layer.mkdir(parents=True)
        options = f"lowerdir={path},upperdir={layers[0]},workdir={layers[1]}"
        run("mount", "-t", "overlay", "overlay", "-o", options, path)
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    names = [f"{address} {name}" for name, address in ADDRESSES.items()]
    Path("/etc/hosts").write_text("\n".join(["127.0.0.1 localhost", *names, ""]))
    for path in ("/run/secrets", "/var/lib/vivavoce/cache", "/etc/caddy"):
        Path(path).mkdir(parents=True, exist_ok=True)
    shutil.copy(DEPLOY / "Caddyfile", "/etc/caddy/Caddyfile")
    shutil.rmtree("/etc/prometheus", ignore_errors=True)
    shutil.copytree(DEPLOY / "prometheus", "/etc/prometheus")


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@contextmanager
def service(name: str, command: list[str], folder: Path, grace_s: float = 10.0) -> Iterator[None]:
    """Run a service, whose last lines are printed if it ends early or does not end in time."""
    place = folder / name
    place.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(place), "XDG_DATA_HOME": str(place)}
    with (place / "log").open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=place,
            stdout=log,
            stderr=log,
            env={**environment, "PYTHONPATH": str(ROOT / ".links"), **variables_of(name)},
        )
        try:
            yield
            assert process.poll() is None, f"{name} ended"
        except BaseException:
            print(name, (place / "log").read_text()[-1_500:], file=sys.stderr)
            raise
        finally:
            started = time.monotonic()
            process.terminate()
            process.wait(grace_s)
            print(f"{name} ended with {process.returncode} after {time.monotonic() - started:.1f} s")


def until(found: Callable[[], Any]) -> Any:
    """What a function returns that is not None; it may raise OSError before."""
    end = time.monotonic() + TIMEOUT_S
    while True:
        try:
            if (value := found()) is not None:
                return value
        except OSError:
            if time.monotonic() > end:
                raise
        assert time.monotonic() < end, found
        time.sleep(0.2)


def ask(url: str, key: str = "", body: object = None, certificate: Path | None = None) -> tuple[int, bytes]:
    """Status and body of an answer, of a server whose certificate that authority has signed."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    data = None if body is None else json.dumps(body).encode()
    context = ssl.create_default_context(cafile=str(certificate) if certificate else None)
    handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    request = urllib.request.Request(url, data, {**headers, "content-type": "application/json"})
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


async def relayed_addresses(server: Mapping[str, str], peers: list[str]) -> dict[str, int]:
    """What coturn answers to a permission for each peer, to a client with a server's credentials."""
    transport, _ = await turn.create_turn_endpoint(
        asyncio.DatagramProtocol,
        server_addr=(ADDRESSES["caddy"], 3478),
        username=server["username"],
        password=server["credential"],
    )
    inner = vars(transport)["_TurnTransport__inner_protocol"]  # that requests permissions
    answers = {}
    for peer in peers:
        request = stun.Message(message_method=stun.Method.CREATE_PERMISSION, message_class=stun.Class.REQUEST)
        request.attributes["XOR-PEER-ADDRESS"] = (peer, 9)
        try:
            await inner.request_with_retry(request)
            answers[peer] = 0
        except stun.TransactionFailed as error:
            answers[peer] = error.response.attributes["ERROR-CODE"][0]
    transport.close()
    return answers


def try_services(folder: Path, key: str) -> None:
    authority = folder / "caddy" / "caddy" / "pki" / "authorities" / "local" / "root.crt"
    until(lambda: authority.exists() or None)
    speech = {"input": "Hello from behind Caddy.", "response_format": "mp3"}

    def page() -> bytes | None:
        status, content = ask("https://localhost/", key, certificate=authority)
        return content if status == 200 else None

    assert b"<title>vivavoce" in until(page)
    assert ask("https://localhost/", certificate=authority)[0] == 401
    status, sound = ask("https://localhost/v1/audio/speech", key, speech, authority)
    assert status == 200 and len(sound) > 5_000
    print(f"Caddy: the page and {len(sound)} bytes of MP3 over TLS; 401 without a key")

    status, answer = ask("https://localhost/start", key, {"enableDefaultIceServers": True}, authority)
    (server,) = json.loads(answer)["iceConfig"]["iceServers"]
    assert status == 200 and server["urls"][0] == "turn:localhost:3478"
    answers = asyncio.run(relayed_addresses(server, [ADDRESSES["gateway"], ADDRESSES["redis"], "10.0.0.1"]))
    assert list(answers.values()) == [0, TURN_REFUSES, TURN_REFUSES], answers
    print("coturn: takes the page's credentials, relays to the gateway, refuses Redis and 10.0.0.1")

    def target() -> dict[str, Any] | None:
        found = json.loads(ask("http://127.0.0.1:9090/api/v1/targets")[1])["data"]["activeTargets"]
        return next((one for one in found if one["health"] == "up"), None)

    assert until(target)["labels"]["job"] == "vivavoce"
    groups = json.loads(ask("http://127.0.0.1:9090/api/v1/rules")[1])["data"]["groups"]
    print(f"Prometheus: the gateway is up, {sum(len(group['rules']) for group in groups)} alerts are loaded")
    clients = run("redis-cli", "-h", ADDRESSES["redis"], "client", "list").splitlines()
    assert any(f"addr={address}" in line for address in ADDRESSES.values() for line in clients)
    print(f"Redis: {len(clients) - 1} connections of the gateway")


def main() -> None:
    with TemporaryDirectory() as temporary, ExitStack() as services:
        folder = Path(temporary)
        make_place(folder)
        keys_file = variables_of("gateway")["VIVAVOCE_ACCESS_KEYS_FILE"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / ".links")}

        def add_key(name: str) -> str:
            command = [*GATEWAY, "keys", "add", name, "--keys-file", keys_file, "--scope", "admin"]
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            (key,) = re.findall(r"\bvv_\S+|\b[A-Za-z0-9_-]{30,}\b", done.stdout)[:1]
            return str(key)

        key = add_key("me")
        Path("/run/secrets/metrics_key").write_text(add_key("prometheus"))
        grace_s = float(SERVICES["gateway"]["stop_grace_period"].removesuffix("s"))
        for name, command, stop_s in (
            (
                "redis",
                ["redis-server", "--bind", ADDRESSES["redis"], "--protected-mode", "no", "--save", ""],
                10,
            ),
            ("gateway", [*GATEWAY, "serve"], grace_s),
            ("caddy", ["caddy", "run", "--adapter", "caddyfile", "--config", "/etc/caddy/Caddyfile"], 10),
            ("coturn", ["turnserver", "-n", *command_of("coturn"), "--log-file=stdout", *LOOPBACK], 10),
            ("prometheus", ["prometheus", *command_of("prometheus")], 10),
        ):
            services.enter_context(service(name, command, folder, stop_s))
        until(lambda: True if ask(f"http://{ADDRESSES['gateway']}:8080/readyz")[0] == 200 else None)
        try_services(folder, key)


if __name__ == "__main__":
    if "inside" in sys.argv:
        main()
    else:
        namespace = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        sys.exit(subprocess.call([*namespace, sys.executable, *sys.argv, "inside"]))
