"""The libraries of the product report nothing about their use to their makers, in any process."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from shared.isolated_network import SEEN, can_isolate, isolated, lines_until

CI_VARIABLES = {
    "APPVEYOR",
    "BITBUCKET_BUILD_NUMBER",
    "BUILDKITE",
    "CI",
    "CIRCLECI",
    "CODEBUILD_BUILD_ID",
    "GITHUB_ACTIONS",
    "GITLAB_CI",
    "JENKINS_URL",
    "TEAMCITY_VERSION",
    "TF_BUILD",
    "TRAVIS",
}
OFF = {"ORT_DISABLE_TELEMETRY": "1", "RAY_USAGE_STATS_ENABLED": "0", "RAY_USAGE_STATS_REPORT_URL": ""}
# What an operator runs, and programs that use the package as a library.
COMMAND_LINE = "from vivavoce.gateway.cli import run; run()"
ENGINE = """
import asyncio
from vivavoce import Engine
async def speak():
    async with await Engine.open() as engine, engine.stream() as stream:
        stream.push_text("Hello.")
        stream.end_input()
        async for chunk in stream:
            pass
        print("spoken", flush=True)
        await asyncio.Event().wait()
asyncio.run(speak())
"""
RAY_HEAD = """
from vivavoce.gateway.cluster.ray.operations import start_head
start_head("127.0.0.1", 6379, None)
print("started", flush=True)
"""
PIPECAT_SERVICE = ENGINE.replace(
    "from vivavoce import Engine",
    "from vivavoce.adapters.pipecat import VivavoceTTSService\n"
    "from pipecat.audio.vad.silero import SileroVADAnalyzer  # imports ONNX Runtime\n"
    "from vivavoce import Engine\n"
    "SileroVADAnalyzer()\n",
)
# Ray's head asks which cloud the machine is in; no setting stops that, and it reports the answer to nobody.
CLOUD_METADATA = ("169.254.169.254", "metadata.google.internal")
ONNX_RUNTIME_ALONE = "import onnxruntime, time\ntime.sleep(120)"


def environment(**changed: str) -> dict[str, str]:
    """Variables as a user has them: ONNX Runtime reports nothing where it finds those of a CI."""
    unset = {*OFF, *CI_VARIABLES}
    return {name: value for name, value in os.environ.items() if name not in unset} | changed


def settings_after(statement: str, **changed: str) -> dict[str, str]:
    """The variables of the libraries in a process after an import."""
    code = f"{statement}\nimport os\nfor each in os.environ: print(each, os.environ[each], sep='=')"
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment(**changed), capture_output=True, text=True, check=True
    )
    found = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
    return {name: value for name, value in found.items() if name in OFF}


@pytest.mark.parametrize(
    "statement",
    [
        "import vivavoce",
        "import vivavoce.models.devices.onnx_sessions",
        "import vivavoce.adapters.voice_activity",
    ],
)
def test_every_part_of_the_package_turns_the_reports_of_libraries_off(statement: str) -> None:
    assert settings_after(statement) == OFF


def test_what_the_operator_has_decided_on_the_reports_stays() -> None:
    chosen = {
        "ORT_DISABLE_TELEMETRY": "0",
        "RAY_USAGE_STATS_ENABLED": "1",
        "RAY_USAGE_STATS_REPORT_URL": "http://192.0.2.1",
    }
    assert settings_after("import vivavoce", **chosen) == chosen


@pytest.mark.slow
@pytest.mark.skipif(not can_isolate(), reason="no network of its own can be made here (unshare, ip)")
def test_no_process_asks_for_a_name_or_connects_to_a_host(tmp_path: Path) -> None:
    serve = [COMMAND_LINE, "serve", "--http-port", "0", "--audiosocket-port", "0"]
    programs = {  # and a part of what each prints when it has spoken
        "serve": (serve, "vivavoce is ready"),
        "say": ([COMMAND_LINE, "say", "Hello.", "-o", "hello.wav"], "of speech in"),
        "Engine": ([ENGINE], "spoken"),
        "Pipecat service": ([PIPECAT_SERVICE], "spoken"),
        "head of a cluster": ([RAY_HEAD], "started"),
        "replica": ([*serve, "--executor", "ray:local"], "vivavoce is ready"),
    }
    with ExitStack() as stack:
        processes, printed = {}, {}
        for name, (program, _) in programs.items():
            command = [sys.executable, "-c", *program]
            processes[name] = stack.enter_context(isolated(command, tmp_path / name, environment()))
        for name, (_, ready) in programs.items():
            printed[name] = lines_until(processes[name], ready)
            assert ready in printed[name][-1], printed[name]
        # ONNX Runtime alone, which starts last, shows that the others had the time in which it reports.
        command = [sys.executable, "-c", ONNX_RUNTIME_ALONE]
        alone = stack.enter_context(isolated(command, tmp_path / "alone", environment()))
        assert SEEN in lines_until(alone, SEEN)[-1]
        for name, process in processes.items():
            process.kill()
            printed[name] += lines_until(process, "never printed")
    seen = {name: {line for line in lines if line.startswith(SEEN)} for name, lines in printed.items()}
    for name in ("replica", "head of a cluster"):
        seen[name] -= {f"{SEEN}{each}\n" for each in CLOUD_METADATA}
    assert {name: lines for name, lines in seen.items() if lines} == {}
    cached = {each.name for name in programs for each in (tmp_path / name).glob("cache/*")}
    assert cached == {"vivavoce"}
