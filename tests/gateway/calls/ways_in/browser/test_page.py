"""The page of browser calls: its files, its policy, and Pipecat's page."""

import re
from pathlib import Path

import pytest

from shared.browser.fake_browser import BrowserServer, with_server
from vivavoce.gateway.calls.ways_in.browser import routes as browser_routes
from vivavoce.gateway.calls.ways_in.browser.routes import PAGE_DIRECTORY


def test_the_page_s_content_security_policy_allows_this_origin_only() -> None:
    async def scenario(server: BrowserServer) -> None:
        for path in ["/call", *(f"/call/{file.name}" for file in PAGE_DIRECTORY.iterdir())]:
            answer = await server.client.get(path)
            assert answer.status_code == 200
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"

    with_server(scenario)


@pytest.mark.parametrize("path", ["/call/none.js", "/call/..%2f__init__.py", "/call/%2e%2e/http.py"])
def test_a_path_outside_the_page_s_folder_is_not_found(path: str) -> None:
    async def scenario(server: BrowserServer) -> None:
        assert (await server.client.get(path)).status_code == 404

    with_server(scenario)


def test_pipecat_s_page_is_served_if_it_is_installed() -> None:
    pytest.importorskip(
        "pipecat_ai_prebuilt", reason="needs pipecat-ai-prebuilt: make test EXTRAS=dev,stt,pipecat"
    )

    async def scenario(server: BrowserServer) -> None:
        answer = await server.client.get("/client/")
        assert answer.status_code == 200
        (script,) = set(re.findall(r'src="[./]*(?:client/)?(assets/[^"]+\.js)"', answer.text))
        assert (await server.client.get(f"/client/{script}")).status_code == 200
        assert (await server.client.get("/client/../frontend.py")).status_code == 404

    with_server(scenario)


def test_pipecat_s_page_is_not_found_if_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser_routes, "find_spec", lambda name: None)

    async def scenario(server: BrowserServer) -> None:
        assert (await server.client.get("/client/")).status_code == 404

    with_server(scenario)


def test_the_page_s_folder_is_in_the_package_data() -> None:
    pyproject = (Path(__file__).parents[5] / "pyproject.toml").read_text(encoding="utf-8")
    assert '"vivavoce.gateway.calls.ways_in.browser" = ["page/*"' in pyproject
