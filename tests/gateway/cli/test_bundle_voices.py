"""``vivavoce voices list`` and ``say`` with bundles of each kind."""

import json
from pathlib import Path

import pytest

from shared.voices.tiny_kokoro import write_tiny_kokoro
from shared.voices.tiny_piper import write_tiny_piper
from vivavoce.gateway.cli import main


def command(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        main.main([*map(str, arguments)])
    return int(end.value.code or 0)


def test_the_voices_of_a_bundle_of_each_kind_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    piper = write_tiny_piper(tmp_path / "piper", speakers=2).parent
    kokoro = write_tiny_kokoro(tmp_path / "kokoro")
    assert command("voices", "list") == 0
    assert capsys.readouterr().out.split()[:2] == ["heart", "en-US"]
    assert command("voices", "list", "--bundle", piper) == 0
    lines = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert lines == [["xx_XX-tiny-low/s0", "en-US"], ["xx_XX-tiny-low/s1", "en-US"]]
    assert command("voices", "list", "--bundle", kokoro, "--json") == 0
    assert [voice["id"] for voice in json.loads(capsys.readouterr().out)] == ["af_one", "am_two", "jm_three"]


def test_say_speaks_with_a_bundle_of_each_kind(tmp_path: Path) -> None:
    folders = (write_tiny_piper(tmp_path / "piper").parent, write_tiny_kokoro(tmp_path / "kokoro"))
    for folder in folders:
        out = tmp_path / f"{folder.name}.wav"
        assert command("say", "--bundle", folder, "-o", out, "Hello, two words.") == 0
        assert out.stat().st_size > 24_000
