"""The programs that the tab Speak shows, run as they are copied, against a server with and without keys."""

import asyncio
import io
import re
import shutil
import sys
import warnings
import wave
from pathlib import Path
from typing import Any, Final

import av
import pytest

from shared.browser.chromium_calls import needs_chromium
from shared.browser.speak_page import SpeakPage, on_page
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope

pytestmark = needs_chromium

# Quotes of every language, a variable and a comment of the dial plan, and letters beyond ASCII.
TEXT: Final = 'It\'s "five"; `six` costs $7, ${8} or $[9]: 100%\\nine naïve\nwords; 你好.'
SHELL: Final = ("sh", "-c")
PROGRAMS: Final = {
    "curl": SHELL,
    "Python": (sys.executable, "-c"),
    "JavaScript": ("node", "--input-type=module", "-e"),
}


async def copied(page: SpeakPage, name: str) -> str:
    """Choose the options of a busy user, press the program's button and Copy; return what was copied."""
    await page.write(TEXT)
    await page.tab.run("""speed.value = 1.25; speed.dispatchEvent(new Event("input"));
        seed.value = 7; seed.dispatchEvent(new Event("input"));
        document.querySelector("[value=tone-330]").click();
        navigator.clipboard.writeText = async (text) => { window.copied = text; };""")
    await page.click(f"#snippets [value={name!r}]")
    await page.click("copy")
    await page.tab.wait_until("window.copied")
    return str(await page.tab.run("copied"))


async def run_program(command: tuple[str, ...], program: str, folder: Path, key: str) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "VIVAVOCE_KEY": key}
    process = await asyncio.create_subprocess_exec(*command, program, cwd=folder, env=environment)
    assert await process.wait() == 0


def seconds_of(file: Path) -> float:
    with av.open(str(file)) as sound:
        return sum(frame.samples / frame.sample_rate for frame in sound.decode(audio=0))


@pytest.mark.parametrize("keyed", [False, True], ids=["open", "keyed"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_copied_program_writes_the_speech(name: str, keyed: bool, tmp_path: Path) -> None:
    if shutil.which(PROGRAMS[name][0]) is None:
        pytest.skip(f"needs {PROGRAMS[name][0]}")
    if name == "Python":
        pytest.importorskip("openai")
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("me", (Scope.SPEAK,), KeyLimits()) if keyed else ""

    async def scenario(page: SpeakPage) -> None:
        program = await copied(page, name)
        await run_program(PROGRAMS[name], program, tmp_path, key)
        assert seconds_of(tmp_path / "speech.mp3") > 1.0

    on_page(scenario, key=key, **({"access_keys_file": tmp_path / "keys.json"} if keyed else {}))


@pytest.mark.parametrize("keyed", [False, True], ids=["open", "keyed"])
def test_the_copied_dial_plan_makes_a_file_that_asterisk_plays(keyed: bool, tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("me", (Scope.SPEAK,), KeyLimits()) if keyed else ""

    async def scenario(page: SpeakPage) -> None:
        lines = (await copied(page, "Dial plan")).splitlines()
        # As Asterisk reads it: ";" begins a comment, variables are replaced, System runs the rest.
        plan = "\n".join(line.partition(";")[0] for line in lines)
        (command,) = re.findall(r"n,System\((.*)\)", plan)
        values = {"UNIQUEID": "1.2", "VIVAVOCE_KEY": key}
        command = re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], command)
        assert "$" not in command
        (played,) = re.findall(r"n,Playback\((.*)\)", plan)
        target = tmp_path / "spoken.wav"
        written = f"{played}.wav".replace("${UNIQUEID}", values["UNIQUEID"])
        await run_program(SHELL, command.replace(written, str(target)), tmp_path, "")
        with wave.open(io.BytesIO(target.read_bytes())) as wav:
            assert wav.getparams()[:3] == (1, 2, 8_000) and wav.getnframes() > 8_000

    on_page(scenario, key=key, **({"access_keys_file": tmp_path / "keys.json"} if keyed else {}))


def test_the_copied_pipecat_program_speaks_in_a_pipeline(tmp_path: Path) -> None:
    pytest.importorskip("pipecat", reason="needs pipecat: make test EXTRAS=dev,stt,pipecat")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Pipecat imports its own deprecated classes
        from pipecat.frames.frames import TTSStoppedFrame

        from shared.gateways.pipecat_pipeline import run_pipeline

    async def scenario(page: SpeakPage) -> None:
        names: dict[str, Any] = {}
        exec(await copied(page, "Pipecat"), names)
        async with run_pipeline(names["tts"]) as pipeline:
            await pipeline.send(names["greeting"])
            await pipeline.until(TTSStoppedFrame)
            assert len(pipeline.audio) > 24_000

    on_page(scenario)
