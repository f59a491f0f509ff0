"""The page's two tabs: their files and policy, the keys that open them, and what a server tells them."""

import re
from pathlib import Path
from typing import Final

import httpx
import pytest

from shared.gateways.running_gateway import ask_gateway
from vivavoce import __version__
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.calls.ways_in.browser.routes import PAGE_DIRECTORY
from vivavoce.gateway.page.routes import FILES

TABS: Final = {"/": (FILES, "index.html"), "/call": (PAGE_DIRECTORY, "call.html")}
FOLDERS: Final = {"/page": FILES, "/call": PAGE_DIRECTORY}
ALL_FILES: Final = [file for folder in FOLDERS.values() for file in sorted(folder.iterdir())]
MAX_PAGE_BYTES: Final = 150_000
SVG: Final = "http://www.w3.org/2000/svg"
as_name = pytest.mark.parametrize("tab", TABS)


def test_every_file_has_a_policy_that_allows_this_origin_only() -> None:
    async def questions(client: httpx.AsyncClient) -> None:
        paths = [f"{path}/{file.name}" for path, folder in FOLDERS.items() for file in folder.iterdir()]
        for path in [*TABS, *paths]:
            answer = await client.get(path)
            assert answer.status_code == 200, path
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"

    ask_gateway(questions)


@pytest.mark.parametrize("path", ["/page/none.js", "/page/..%2froutes.py", "/page/%2e%2e/routes.py"])
def test_a_path_outside_the_page_s_folder_is_not_found(path: str) -> None:
    async def questions(client: httpx.AsyncClient) -> None:
        assert (await client.get(path)).status_code == 404

    ask_gateway(questions)


@pytest.mark.parametrize("file", ALL_FILES, ids=lambda file: file.name)
def test_no_file_names_another_host(file: Path) -> None:
    assert not re.search(r"(https?:)?//[a-z0-9-]+\.[a-z]", file.read_text("utf-8").replace(SVG, ""))


@as_name
def test_a_tab_weighs_less_than_the_limit(tab: str) -> None:
    assert sum(file.stat().st_size for file in {*TABS[tab][0].iterdir(), *FILES.iterdir()}) < MAX_PAGE_BYTES


@as_name
def test_the_markup_has_no_inline_style_or_script(tab: str) -> None:
    folder, name = TABS[tab]
    markup = (folder / name).read_text("utf-8")
    assert not re.search(r"\sstyle=|\son[a-z]+=|<style|<script(?![^>]*\ssrc=)", markup)


@as_name
def test_every_id_used_by_the_scripts_exists_and_every_control_has_a_label(tab: str) -> None:
    folder, name = TABS[tab]
    markup = (folder / name).read_text("utf-8")
    script = "".join(file.read_text("utf-8") for file in folder.glob("*.js"))
    ids = set(re.findall(r'id="([^"]+)"', markup))
    assert set(re.findall(r'\$\("([^"]+)"\)', script)) | set(re.findall(r'"(n-[a-z]+)"', script)) <= ids
    for control in re.findall(r'<(?:select|textarea|input)[^>]*\sid="[^"]+"[^>]*>', markup):
        found = re.search(r'\sid="([^"]+)"', control)
        assert found is not None
        is_wrapped = re.search(
            rf'<label[^>]*>[^/]*(?:<span[^>]*>[^<]*</span>\s*)?<input id="{found[1]}"', markup
        )
        assert f'for="{found[1]}"' in markup or "aria-label=" in control or is_wrapped, control


def test_each_tab_opens_with_its_scope_and_sends_other_keys_to_the_other(tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    tokens = {scope: keys.add(scope, (scope,), KeyLimits()) for scope in Scope}

    async def questions(client: httpx.AsyncClient) -> None:
        async def ask(scope: Scope, path: str) -> tuple[int, str | None]:
            answer = await client.get(path, headers={"authorization": f"Bearer {tokens[scope]}"})
            return answer.status_code, answer.headers.get("location")

        assert await ask(Scope.SPEAK, "/") == await ask(Scope.PAGE, "/call") == (200, None)
        assert await ask(Scope.SPEAK, "/call") == (307, "/")
        assert await ask(Scope.PAGE, "/") == (307, "/call")
        assert await ask(Scope.ORIGINATE, "/") == await ask(Scope.ORIGINATE, "/page/speak.js") == (403, None)
        client.cookies.clear()
        assert (await client.get("/")).status_code == (await client.get("/page/speak.js")).status_code == 401

    ask_gateway(questions, access_keys_file=tmp_path / "keys.json")


def test_a_server_tells_what_it_does_for_a_key(tmp_path: Path) -> None:
    key = KeysFile(tmp_path / "keys.json").add("me", (Scope.SPEAK,), KeyLimits())

    async def questions(client: httpx.AsyncClient) -> None:
        assert (await client.get("/v1/server")).status_code == 401
        told = (await client.get("/v1/server", headers={"x-api-key": key})).json()
        assert told == {
            "version": __version__,
            "needs_key": True,
            "scopes": ["speak"],
            "max_input_characters": 500,
            "default_voice": "tone-440",
            "clones_voices": False,
            "transcribes": False,
        }

    ask_gateway(questions, access_keys_file=tmp_path / "keys.json", apis_max_input_characters=500)


def test_the_files_are_in_the_package_data() -> None:
    pyproject = (Path(__file__).parents[3] / "pyproject.toml").read_text("utf-8")
    assert '"vivavoce.gateway.page" = ["files/*"]' in pyproject
    assert '"vivavoce.gateway.calls.ways_in.browser" = ["page/*"' in pyproject
