"""Checks that the READMEs, the dial plan and the example configuration are true."""

import ast
import functools
import json
import operator
import pkgutil
import re
import shlex
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import click
import pytest

from shared.gateways.gateway_metrics import every_metric
from vivavoce.gateway.calls.agents.kinds.script import split_script
from vivavoce.gateway.cli import main
from vivavoce.gateway.cli.bench.processes import run_server_process
from vivavoce.gateway.cli.commands.serve.command import reference
from vivavoce.gateway.cli.configuration.setting_keys import SETTING_KEYS, former_settings
from vivavoce.gateway.cli.configuration.settings_loader import load_settings
from vivavoce.gateway.configuration.settings import Settings
from vivavoce.tts_engine.packaging.installation import install_command

ROOT = Path(__file__).parents[1]
LAYERS = ("models", "tts_engine", "adapters", "gateway")
DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(
        [ROOT / "README.md", *(ROOT / "tests").glob("*.md"), *(ROOT / "examples").glob("*.md")]
    )
    + sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("README.md"))
}
README = DOCUMENTS["README.md"]
GATEWAY_README = DOCUMENTS["gateway/README.md"]
SERVER = "127.0.0.1:8080"  # in snippets that need a server
MAX_README_LINES = 150


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def all_blocks(language: str) -> list[str]:
    return [block for text in DOCUMENTS.values() for block in blocks(language, text)]


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def picture_names() -> list[str]:
    (picture,) = blocks("text", README)
    return re.findall(rf"\b(?:{'|'.join(LAYERS)})(?:\.\w+)+", picture)


def resolve(name: str) -> object:
    """Import as much of a dotted name as is a module, and take the rest as attributes."""
    return pkgutil.resolve_name(f"vivavoce.{name}")


def shell_lines() -> list[str]:
    inline = [
        line for text in DOCUMENTS.values() for line in re.findall(r"`((?:vivavoce|make) [^`]+)`", text)
    ]
    return [line for block in all_blocks("sh") for line in block.splitlines()] + inline


def vivavoce_commands() -> Iterator[list[str]]:
    for line in shell_lines():
        for part in line.split(" | "):
            words = shlex.split(part)
            if words and Path(words[0]).name == "vivavoce":
                yield words[1:]


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The click command that ``words`` names, and its arguments."""
    command: click.Command = main._commands
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def rows_after(heading: str) -> list[list[str]]:
    """Cells of the first table under a heading of the gateway's README, without its head."""
    section = GATEWAY_README.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("name", picture_names())
def test_a_name_in_the_picture_exists(name: str) -> None:
    assert callable(resolve(name))


def test_the_picture_shows_every_layer_on_the_way() -> None:
    names = picture_names()
    assert {name.partition(".")[0] for name in names} == set(LAYERS)
    assert len(names) >= 15


def test_a_name_that_does_not_exist_would_be_found() -> None:
    with pytest.raises(AttributeError):
        resolve("tts_engine.stream.Stream.push_texts")


@pytest.mark.parametrize(
    "words", [*map(list, dict.fromkeys(map(tuple, vivavoce_commands())))], ids=shlex.join
)
def test_a_command_shown_is_one_that_can_be_called(words: list[str]) -> None:
    command, rest = command_of(words)
    if rest and not {"--help", "--version"} & set(rest):
        command.make_context("vivavoce", rest)  # raises for an unknown option or a missing argument


def test_a_command_that_does_not_exist_would_be_found() -> None:
    command, rest = command_of(["serve", "--no-such-option"])
    with pytest.raises(click.NoSuchOption):
        command.make_context("vivavoce", rest)


def test_commands_are_shown() -> None:
    shown = {words[0] for words in vivavoce_commands() if words and not words[0].startswith("-")}
    assert shown == set(main._commands.commands)


def test_make_targets_shown_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    shown = {line.split()[1] for line in shell_lines() if line.startswith("make ")}
    assert {"run", "test"} <= shown <= targets


@pytest.mark.parametrize("snippet", [block for block in all_blocks("python") if "asyncio.run(" in block])
def test_a_python_snippet_runs(snippet: str, tmp_path: Path) -> None:
    ast.parse(snippet)
    with run_server_process() if SERVER in snippet else nullcontext(SERVER) as url:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", snippet.replace(SERVER, url.removeprefix("http://"))],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
    assert done.returncode == 0, done.stderr
    assert "Hello" in done.stdout


EXAMPLE_CLIENTS = ("attach_to_a_call.py", "stream_text.py")


@pytest.mark.parametrize("example", EXAMPLE_CLIENTS)
def test_an_example_without_its_server_is_one_sentence(example: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    done = run_example(example, f"ws://127.0.0.1:{port}")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"ws://127.0.0.1:{port}: ")


@pytest.mark.parametrize(
    ("example", "package", "remedy"),
    [
        *((example, "websockets", "pip install websockets") for example in EXAMPLE_CLIENTS),
        ("pipecat_bot.py", "pipecat", install_command("pipecat,stt")),
    ],
)
def test_an_example_without_a_package_is_one_sentence(example: str, package: str, remedy: str) -> None:
    done = run_example(example, without=package)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert remedy in done.stderr


def run_example(
    name: str, *arguments: str, without: str = "no_package"
) -> "subprocess.CompletedProcess[str]":
    code = (
        f"import runpy, sys; sys.modules[{without!r}] = None; sys.argv = {[name, *arguments]!r}; "
        f"runpy.run_path({str(ROOT / 'examples' / name)!r}, run_name='__main__')"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def written_files() -> list[str]:
    """The files that the shell commands of the documents write."""
    options = r"(?:--out|-o|--keys-file|--store|--output|>)[ =]"
    return sorted({name for line in shell_lines() for name in re.findall(options + r"(\w[\w.]*)", line)})


def test_git_ignores_what_the_commands_of_the_documents_write(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_bytes((ROOT / ".gitignore").read_bytes())
    written = written_files()
    assert {"heard.wav", "out.wav", "keys.json"} <= set(written)
    written += ["heard.packets.csv", "keys.json.lock", ".venv", "vivavoce.egg-info"]
    for name in written:
        path = tmp_path / name
        if path.suffix in ("", ".egg-info"):  # a folder, which git reports only if it holds a file
            path.mkdir()
            path /= "file"
        path.touch()
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    status = ["git", "-C", str(tmp_path), "status", "--porcelain", "--untracked-files=normal"]
    found = subprocess.run(status, check=True, capture_output=True, text=True).stdout
    assert found == "?? .gitignore\n"


def test_the_configuration_table_is_what_the_command_prints() -> None:
    assert f"\n\n{reference()}\n\n" in GATEWAY_README


def test_the_example_configuration_is_all_defaults() -> None:
    example = tomllib.loads((ROOT / "examples" / "vivavoce.toml").read_text(encoding="utf-8"))
    assert Settings.model_validate(example) == Settings()
    for key in SETTING_KEYS:
        if key.field.default is not None:
            *tables, name = key.path
            assert name in functools.reduce(operator.getitem, tables, example), key.name


@pytest.mark.parametrize("file", sorted(ROOT.glob("examples/sip/*.toml")), ids=lambda file: file.name)
def test_an_example_of_sip_can_be_served(file: Path) -> None:
    settings = load_settings(file)
    assert settings.sip.port is not None or settings.sip.trunks


def test_the_example_configuration_names_every_setting() -> None:
    text = (ROOT / "examples" / "vivavoce.toml").read_text(encoding="utf-8")
    named = {f"{table}.{key}" for table, key in _keys_with_comments(text)}
    wanted = {key.name for key in SETTING_KEYS if len(key.path) > 1}
    assert wanted <= named


def _keys_with_comments(toml: str) -> Iterator[tuple[str, str]]:
    table = ""
    for line in toml.splitlines():
        if found := re.match(r"(?:# )?\[([\w.]+)\]", line):
            table = found[1]
        elif found := re.match(r"(?:# )?(\w+) = ", line):
            yield table, found[1]


def test_the_changelog_names_what_every_former_setting_is_now() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    rows = [f"| `{name}` | `{new}` |" for name, new in former_settings()["renamed"].items()]
    rows += [
        f"| `{name}` | no longer a setting: {instead} |"
        for name, instead in former_settings()["removed"].items()
    ]
    assert [row for row in rows if row not in changelog] == []


def real_metrics() -> dict[str, str]:
    """The metrics of a gateway of a cluster that are not Prometheus' own: kinds by name."""
    families = every_metric().collect()
    return {family.name: family.type for family in families if family.name.startswith("vivavoce_")}


def test_the_metrics_table_names_every_metric() -> None:
    cells = [name for name, _ in rows_after("Metrics") if name.startswith("`vivavoce_")]
    shown = {name.strip("`") for cell in cells for name in cell.split(", ")}
    assert shown == {f"{name}_total" if kind == "counter" else name for name, kind in real_metrics().items()}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_files_and_headings(document: str) -> None:
    folder = (ROOT / document).parent
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", DOCUMENTS[document]):
        path, _, anchor = link.partition("#")
        target = (folder / path).resolve() if path else (ROOT / document).resolve()
        if "://" in link or link.startswith("/"):
            continue
        wanted = not anchor or anchor in anchors(target.read_text(encoding="utf-8"))
        if not target.exists() or not wanted:
            broken.append(link)
    assert broken == []


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= MAX_README_LINES


@pytest.mark.parametrize(
    "text", [GATEWAY_README, *(file.read_text("utf-8") for file in (ROOT / "examples/asterisk").iterdir())]
)
def test_every_dial_of_an_audiosocket_names_its_format(text: str) -> None:
    dials = [line for line in text.splitlines() if "Dial(AudioSocket/" in line]
    assert [line for line in dials if "/c(slin" not in line] == []


def test_the_dial_plan_answers_before_it_hands_over() -> None:
    for extension in re.findall(
        r"^exten => .*?(?=^exten|\Z)", blocks("ini", GATEWAY_README)[0], re.MULTILINE | re.DOTALL
    ):
        lines = extension.strip().splitlines()
        assert lines[0].endswith("1,Answer()")
        assert "AudioSocket" in lines[1]


def test_the_example_script_has_several_utterances_with_numbers_in_them() -> None:
    script = split_script((ROOT / "examples" / "script.txt").read_text(encoding="utf-8"))
    assert len(script) >= 3
    assert any(re.search(r"\d", text) for text in script)


def test_the_dashboard_shows_every_metric_and_no_other() -> None:
    dashboard = json.loads((ROOT / "examples" / "grafana" / "vivavoce.json").read_text(encoding="utf-8"))
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    asked = " ".join(target["expr"] for panel in panels for target in panel["targets"])
    shown = set(re.findall(r"vivavoce_\w+", asked))
    suffixes = {"counter": "_total", "gauge": "", "histogram": "_bucket"}
    assert shown == {name + suffixes[kind] for name, kind in real_metrics().items()}


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    dashboard = json.loads((ROOT / "examples" / "grafana" / "vivavoce.json").read_text(encoding="utf-8"))
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in dashboard["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len(set(taken)) and max(x for x, _ in taken) < 24
