"""The dialect that the guide in ``gateway/apis/dialects/README.md`` builds: its code runs and speaks."""

import importlib.util
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import av
import httpx
import pytest

from shared.engine.standin_backend import WORD_S
from vivavoce.gateway.web.openapi.document import openapi_document
from vivavoce.tts_engine.packaging import plug_ins

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "gateway/apis/dialects/README.md"
MODULE_NAME = "vivavoce.gateway.apis.dialects.parrot_of_the_guide"
PATH = "/parrot/speech/tone-440"


@pytest.fixture(scope="module")
def dialect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The guide's ``py`` blocks as one module; ``python`` blocks of READMEs are programs of their own."""
    text = GUIDE.read_text(encoding="utf-8")
    source = tmp_path_factory.mktemp("guide") / "parrot.py"
    blocks = re.findall(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    source.write_text("\n\n".join(blocks), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(MODULE_NAME, source)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[MODULE_NAME] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[MODULE_NAME]


async def post(served: Any, path: str = PATH, **body: Any) -> httpx.Response:
    answer: httpx.Response = await served.client.post(path, json={"text": "One two three.", **body})
    return answer


@pytest.fixture
def mounted(dialect: ModuleType) -> Any:
    """Mounts the dialect on a served app; returns its API."""

    def mount(served: Any) -> Any:
        api = dialect.ParrotApi(served.api.server)
        served.app.include_router(api.routes())
        return api

    return mount


def test_the_guides_dialect_speaks(mounted: Any, run: Any) -> None:
    async def test(served: Any) -> None:
        mounted(served)
        answer = await post(served)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/mpeg")
        with av.open(io.BytesIO(answer.content), format="mp3") as file:
            seconds = sum(frame.samples / frame.sample_rate for frame in file.decode(audio=0))
        assert seconds == pytest.approx(3 * WORD_S, abs=0.15)

    run(test)


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (PATH, {"text": ""}, 422, "invalid_request"),
        (PATH, {"voice_settings": {"speed": "1.0"}}, 422, "invalid_request"),
        (PATH, {"text": "a" * 2**18}, 422, "invalid_request"),
        (PATH, {"text": "a" * 2**20}, 413, "request_too_large"),
        (PATH.replace("tone-440", "anna"), {}, 404, "voice_not_found"),
    ],
)
def test_the_guides_dialect_has_errors_of_its_own(
    path: str, body: dict[str, Any], status: int, code: str, mounted: Any, run: Any
) -> None:
    async def test(served: Any) -> None:
        mounted(served)
        answer = await post(served, path, **body)
        assert (answer.status_code, answer.json()["detail"]["status"]) == (status, code)

    run(test)


def test_the_guides_dialect_refuses_while_the_server_drains(mounted: Any, run: Any) -> None:
    async def test(served: Any) -> None:
        await mounted(served).finish(1.0)
        answer = await post(served)
        assert (answer.status_code, answer.json()["detail"]["status"]) == (503, "system_busy")
        assert int(answer.headers["retry-after"]) >= 1

    run(test)


def test_another_package_adds_the_guides_dialect_with_an_entry_point(
    dialect: ModuleType, run_every_api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def entry_points(group: str, path: tuple[str, ...]) -> list[Any]:
        return [SimpleNamespace(load=lambda: dialect.PARROT)] if group == "vivavoce.dialects" else []

    async def test(served: Any) -> None:
        answer = await post(served)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/mpeg")
        document = (await served.client.get("/openapi.json")).json()
        assert "/parrot/speech/{voice_id}" in document["paths"] and "/v1/audio/speech" in document["paths"]
        await served.apis.finish(1.0)
        assert (await post(served)).status_code == 503

    monkeypatch.setattr(plug_ins, "installed_entry_points", entry_points)
    run_every_api(test)


def test_the_guides_dialect_is_in_the_openapi_document(mounted: Any, run: Any) -> None:
    async def test(served: Any) -> None:
        mounted(served)
        document = openapi_document(served.app.routes)
        operation = document["paths"]["/parrot/speech/{voice_id}"]["post"]
        assert set(operation["responses"]) == {"200", "401", "403", "404", "413", "422", "429", "500", "503"}
        assert [parameter["name"] for parameter in operation["parameters"]] == ["voice_id"]
        assert "ParrotSpeechRequest" in document["components"]["schemas"]

    run(test)


def test_every_file_that_the_guide_names_exists() -> None:
    named = re.findall(r"`((?:gateway|tests)/[\w/]+(?:\.py|/))`", GUIDE.read_text(encoding="utf-8"))
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == ["gateway/apis/dialects/parrot.py"]
