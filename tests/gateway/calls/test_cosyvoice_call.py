"""A call with the voice of a CosyVoice bundle, and ``say`` with one."""

import asyncio
import wave
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from shared.gateways.made_settings import make_settings

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from shared.voices.cosyvoice_bundles import write_random_bundle  # noqa: E402
from shared.voices.tiny_cosyvoice import BRIEF  # noqa: E402
from vivavoce.gateway.cli.commands.phone.calls import listen  # noqa: E402
from vivavoce.gateway.cli.commands.phone.report import PhoneReport  # noqa: E402
from vivavoce.gateway.cli.main import main  # noqa: E402
from vivavoce.gateway.serve import Gateway  # noqa: E402
from vivavoce.tts_engine.cosyvoice import policy  # noqa: E402


@pytest.fixture(scope="module", params=[2, 3])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundles") / str(request.param)
    write_random_bundle(folder, request.param, "tiny", 1)
    return folder


@pytest.fixture(autouse=True)
def sentences_are_brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "policy_for", lambda *arguments: BRIEF)


def peak(file: Path) -> int:
    with wave.open(str(file)) as recorded:
        samples = np.frombuffer(recorded.readframes(recorded.getnframes()), "<i2")
    return int(np.abs(samples.astype(np.int32)).max())


@pytest.mark.slow
def test_a_caller_receives_the_bundle_s_voice(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "script.txt").write_text("Hi.", "utf-8")
    settings = make_settings(
        http_port=0,
        audiosocket_port=0,
        bundle_folder=str(bundle),
        agents_default=f"script:{tmp_path / 'script.txt'}",
    )

    def call(host: str, port: int) -> PhoneReport:
        console = Console(file=StringIO())
        return listen(
            host, port, seconds=30, out=tmp_path / "received.wav", calls=1, dtmf="", progress=console
        )

    async def serve() -> None:
        gateway = await Gateway.open(settings)
        assert gateway.engine.voices.default.id == "nobody"
        await asyncio.to_thread(call, *gateway.addresses.ways_in["audiosocket"])
        await gateway.aclose()

    asyncio.run(serve())
    assert peak(tmp_path / "received.wav") > 300


@pytest.mark.slow
def test_say_speaks_with_a_bundle(bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "speech.wav"
    with pytest.raises(SystemExit) as ended:
        main(["say", "--bundle", str(bundle), "--voice", "nobody", "Good morning.", "-o", str(file)])
    assert ended.value.code == 0
    assert peak(file) > 300


def test_say_keeps_the_old_file_when_the_bundle_is_invalid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "speech.wav"
    file.write_bytes(b"old content")
    with pytest.raises(SystemExit) as ended:
        main(["say", "--bundle", str(tmp_path), "Good morning.", "-o", str(file)])
    assert ended.value.code == 1
    assert "no bundle of any kind" in capsys.readouterr().err
    assert file.read_bytes() == b"old content"
