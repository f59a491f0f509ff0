"""The command line: flags, exit codes, one sentence for each failure. Commands run in this process."""

import json
import os
import shlex
import socket
import subprocess
import sys
import tomllib
import wave
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest

from vivavoce import __version__
from vivavoce.gateway import cli
from vivavoce.gateway.cli import main
from vivavoce.gateway.cli.bench import call as call_bench
from vivavoce.gateway.cli.bench import commands
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.gateway.configuration.settings import Settings
from vivavoce.tts_engine.chunk import SAMPLE_RATE
from vivavoce.tts_engine.packaging.installation import install_command


def command_paths(group: click.Group, *path: str) -> Iterator[list[str]]:
    """Every command below a group, as it is typed."""
    for name, command in group.commands.items():
        yield [*path, name]
        if isinstance(command, click.Group):
            yield from command_paths(command, *path, name)


def exit_code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main.main(arguments)
    assert isinstance(end.value.code, int)
    return end.value.code


@pytest.mark.parametrize("command", list(command_paths(main._commands)), ids=" ".join)
def test_every_command_has_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(*command, "--help") == 0
    assert f"Usage: vivavoce {' '.join(command)}" in capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("--version") == 0
    assert capsys.readouterr().out == f"vivavoce {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["dance"], "No such command 'dance'."),
        (
            ["say", "-o", "x.doc", "Hello"],
            "-o x.doc: got the extension '.doc'; allowed are .wav, .mp3, .flac",
        ),
        (["say", "-o", "x", "Hello"], "-o x: got the extension ''; allowed are .wav"),
        (["say", "-o", "x.wav", "--bundle", "/absent", "Hello"], "/absent: no such folder; give a folder of"),
        (["bundle", "check", "/absent"], "/absent: no such folder"),
        (["bundle", "convert", "/absent"], "/absent: no such folder"),
        (
            ["voices", "add", "anna", "anna.wav", "--store", "/absent", "--bundle", "/absent"],
            "/absent: no such folder; give a folder of Piper, Kokoro, XTTS, CosyVoice",
        ),
        (["say", "-o", "x.wav", "--speed", "9", "Hello"], "Invalid value for '--speed'"),
        (["serve", "--colour", "red"], "No such option '--colour'."),
        (["serve", "--http-port", "many"], "http.port (command line): got 'many'; allowed is a port from 0"),
        (["serve", "--host", "0.0.0.0"], "http.host: got '0.0.0.0', which other machines can reach"),
        (["serve", "--audiosocket-host", "::"], "audiosocket.host: got '::', which other machines can reach"),
        (
            ["serve", "--precision", "half"],
            "bundle.precision (command line): got 'half'; allowed is auto, fp32, fp32-fp16, bf16, fp16",
        ),
        (
            ["serve", "--precision", "int8", "--http-port", "0", "--audiosocket-port", "0"],
            "precision is 'int8'; only a CosyVoice bundle has others than fp32",
        ),
        (["say", "-o", "x.wav", "--precision", "half", "Hello"], "Invalid value for '--precision'"),
        (
            ["serve", "--device", "gpu"],
            "bundle.device (command line): got 'gpu'; allowed is one of auto, cpu, cuda[:N], ",
        ),
        (
            ["say", "-o", "x.wav", "--device", "gpu", "Hello"],
            "device is 'gpu'; it must be one of auto, cpu, ",
        ),
        (
            ["say", "-o", "x.wav", "--device", "coreml", "Hello"],
            "device is 'coreml'; ONNX Runtime has cpu",
        ),
        (
            ["say", "-o", "x.wav", "--precision", "int8", "Hello"],
            "precision is 'int8'; only a CosyVoice bundle has others than fp32",
        ),
        (
            ["serve", "--agent", "cat"],
            "agents (command line): got 'cat'; allowed is script:FILE, loop",
        ),
        (
            ["serve", "--agent", "script:/absent.txt"],
            "agent: cannot read the script /absent.txt: No such file",
        ),
        (["serve", "--config", "/absent.toml"], "--config /absent.toml: cannot read it: No such file"),
        (["phone", "127.0.0.1", "1"], "cannot connect to 127.0.0.1:1"),
        (["phone", "127.0.0.1", "1", "--dtmf", "x"], "got digit 'x'"),
        (["bench", "call", "--part", "x"], "Invalid value for '--part'"),
    ],
)
def test_a_failure_is_one_sentence_and_a_code(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(*arguments) != 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"vivavoce: {sentence}")
    assert said.err.count("\n") == 1


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from vivavoce.gateway.cli import main
main.main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    "command",
    [
        "say x -o x.wav --bundle DIR",
        "bundle check DIR",
        "bundle export DIR --to onnx",
        "voices add a a.wav --store DIR --bundle DIR",
    ],
)
def test_without_torch_a_missing_folder_is_named_and_then_the_command_that_adds_the_extra(
    command: str, tmp_path: Path
) -> None:
    (tmp_path / "cosyvoice2.yaml").write_bytes(b"")
    needs = f"needs the extra 'cosyvoice', which is not installed: {install_command('cosyvoice')}\n"
    for folder, sentence in ((tmp_path / "absent", "absent: no such folder; "), (tmp_path, needs)):
        arguments = command.replace("DIR", str(folder)).split()
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_TORCH, *arguments], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
        assert sentence in done.stderr


@pytest.mark.parametrize(
    "group", [[], ["bench"], ["bundle"], ["finetune"], ["keys"], ["voices"]], ids=" ".join
)
def test_a_group_without_a_command_prints_its_help(
    group: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(*group) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"Usage: {' '.join(['vivavoce', *group])} ")
    assert said.err == ""


@pytest.mark.parametrize("path", list(command_paths(main._commands)), ids=" ".join)
def test_the_help_of_a_command_ends_with_an_example_that_it_accepts(path: list[str]) -> None:
    command: click.Command = main._commands
    for name in path:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    if isinstance(command, click.Group):
        return
    assert command.epilog is not None
    program, *example = shlex.split(command.epilog.removeprefix("Example: "))
    assert [program, *example[: len(path)]] == ["vivavoce", *path]
    command.make_context(path[-1], example[len(path) :])


@pytest.mark.parametrize(
    "group", [[], ["bench"], ["bundle"], ["finetune"], ["keys"], ["voices"]], ids=" ".join
)
def test_the_summary_of_a_command_is_whole(group: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    exit_code(*group)
    summaries = capsys.readouterr().out.partition("Commands:\n")[2]
    assert summaries.count(".\n") >= 2 and "..." not in summaries


def test_an_empty_list_says_how_to_add_the_first_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["keys", "list", "--keys-file", str(tmp_path / "k.json")], _list_voices(tmp_path)):
        assert exit_code(*command) == 0
        said = capsys.readouterr()
        assert said.out == ""
        assert f"add one: vivavoce {command[0]} add NAME" in said.err


def _list_voices(store: Path) -> list[str]:
    return ["voices", "list", "--store", str(store)]


def test_a_keys_file_of_another_kind_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "keys.json"
    for content, fault in ((b"hello", "not JSON (Expecting value"), (b"\xff", "not JSON ("), (b"[]", "got ")):
        file.write_bytes(content)
        assert exit_code("keys", "list", "--keys-file", str(file)) == 1
        said = capsys.readouterr().err
        assert said.startswith(f"vivavoce: {file}: not a keys file: {fault}") and said.count("\n") == 1


@pytest.mark.parametrize("flag", ["--http-port", "--audiosocket-port"])
def test_a_port_in_use_is_one_sentence_with_its_flag(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert exit_code("serve", "--http-port", "0", "--audiosocket-port", "0", flag, port) == 1
    address = f"127.0.0.1:{port}"
    expected = f"vivavoce: {address} is in use by another program; choose another port with {flag}.\n"
    assert capsys.readouterr().err == expected


def test_a_bench_that_misses_a_target_exits_with_1_after_its_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missed = BenchReport("call", (BenchFigure("TTFA", 99.0, "ms", at_most=45.0), BenchFigure("calls", 1, "")))
    monkeypatch.setattr(call_bench, "measure", lambda **_: missed)
    assert exit_code("bench", "call", "--json") == 1
    assert json.loads(capsys.readouterr().out)["figures"][0]["reached"] is False
    assert exit_code("bench", "call") == 1
    assert "MISSED" in capsys.readouterr().out


def test_control_c_prints_one_word_and_exits_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*args: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(call_bench, "measure", interrupted)
    assert exit_code("bench", "call") == 130
    assert capsys.readouterr().err.strip() == "vivavoce: Interrupted."


def test_the_command_line_is_imported_where_control_c_is_caught(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(name: str, *_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(SystemExit) as end:
        patch.delitem(sys.modules, main.__name__)
        patch.setattr(sys, "meta_path", [type("Finder", (), {"find_spec": interrupted}), *sys.meta_path])
        cli.run()
    assert end.value.code == 130
    assert capsys.readouterr().err == "vivavoce: Interrupted.\n"


def test_the_program_imports_nothing_but_the_standard_library_before_it_catches_control_c() -> None:
    code = "import sys; import vivavoce.gateway.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    others = {name.partition(".")[0] for name in done.stdout.split()} - sys.stdlib_module_names
    assert not others & {"numpy", "click", "onnxruntime", "prometheus_client", "rich"}
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["scripts"] == {"vivavoce": f"{cli.__name__}:{cli.run.__name__}"}


def test_a_bench_receives_its_flags_and_prints_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, object] = {}

    def measure(**named: object) -> BenchReport:
        asked.update(named)
        return BenchReport("call", (BenchFigure("TTFA", 12.0, "ms", at_most=45.0),))

    monkeypatch.setattr(call_bench, "measure", measure)
    assert exit_code("bench", "call", "--part", "ttfa", "--utterances", "3", "--calls", "7", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["figures"][0]["reached"] is True
    assert asked == {
        "parts": ["ttfa"],
        "over": "audiosocket",
        "utterances": 3,
        "speaking": 50,
        "calls": 7,
        "seconds": 30.0,
    }
    assert exit_code("bench", "call") == 0
    assert "TTFA" in capsys.readouterr().out
    assert asked["parts"] == call_bench.DEFAULT_PARTS


def test_the_part_option_lists_the_parts_of_the_call_bench() -> None:
    assert list(commands._CALL_PARTS) == list(call_bench.CallBenchPart)


def spoken_words(samples: "np.ndarray[tuple[int], np.dtype[np.int16]]", sample_rate: int) -> float:
    """How many words of 0.2 s are in it."""
    return float(np.count_nonzero(np.abs(samples.astype(int)) > 300)) / (0.2 * sample_rate)


@pytest.mark.parametrize("sample_rate", [24000, 8000])
@pytest.mark.usefixtures("stand_in_voice")
def test_say_writes_a_wav_of_the_text(
    sample_rate: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.wav"
    code = exit_code("say", "one two three", "-o", str(out), "--sample-rate", str(sample_rate))
    assert code == 0
    with wave.open(str(out)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (sample_rate, 1, 2)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    assert spoken_words(samples, sample_rate) == pytest.approx(3, abs=0.4)
    assert len(samples) * (SAMPLE_RATE // sample_rate) % 480 == 0  # whole 20 ms: no tail is missing
    said = capsys.readouterr()
    assert said.out == ""
    assert "s of speech in" in said.err


@pytest.mark.usefixtures("stand_in_voice")
def test_say_uses_the_requested_voice(tmp_path: Path) -> None:
    out = tmp_path / "out.wav"
    assert exit_code("say", "one two three", "-o", str(out), "--voice", "tone-880") == 0
    with wave.open(str(out)) as file:
        samples = np.frombuffer(file.readframes(SAMPLE_RATE // 2), "<i2")
    assert np.argmax(np.abs(np.fft.rfft(samples))) * 2 == 880


@pytest.mark.usefixtures("stand_in_voice")
def test_an_unknown_voice_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("say", "one", "-o", str(tmp_path / "out.wav"), "--voice", "bob") == 1
    assert "'bob'" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "  ", "..."])
@pytest.mark.usefixtures("stand_in_voice")
def test_nothing_to_say_is_an_error_that_leaves_an_earlier_file_as_it_is(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.wav"
    out.write_bytes(b"earlier")
    assert exit_code("say", text, "-o", str(out)) == 1
    assert capsys.readouterr().err.startswith("vivavoce: nothing to say: ")
    assert out.read_bytes() == b"earlier"


@pytest.mark.usefixtures("stand_in_voice")
def test_an_unwritable_output_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("say", "one", "-o", str(tmp_path / "absent" / "out.wav")) == 1
    assert capsys.readouterr().err.endswith("out.wav: No such file or directory\n")


@pytest.mark.usefixtures("stand_in_voice")
def test_too_much_text_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("say", "a" * 200_001, "-o", str(tmp_path / "out.wav")) == 1
    assert "200001 characters in one stream, at most 200000" in capsys.readouterr().err


STAND_IN_SAY = """
import sys
from vivavoce.gateway.cli import main as cli
from vivavoce.tts_engine.engine import Engine
from shared.engine.standin_backend import StandInBackend
real_open = Engine.open
async def open_stand_in(*args, **named):
    return await real_open(backend=StandInBackend())
Engine.open = open_stand_in
cli.main(sys.argv[1:])
"""


def start_say(*arguments: str, stdin: int = subprocess.PIPE) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", STAND_IN_SAY, "say", *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_text_on_a_pipe_is_spoken_while_it_is_still_being_written() -> None:
    with start_say("-o", "-") as say:
        assert say.stdin and say.stdout
        say.stdin.write("Onë two. ".encode()[:4])
        say.stdin.flush()
        say.stdin.write("Onë two. ".encode()[4:] + b"And ")
        say.stdin.flush()
        first = say.stdout.read(int(0.4 * SAMPLE_RATE) * 2)  # while standard input is open
        say.stdin.write(b"three.")
        say.stdin.close()
        rest = say.stdout.read()
        assert say.wait() == 0
    assert spoken_words(np.frombuffer(first + rest, "<i2"), SAMPLE_RATE) == pytest.approx(4, abs=0.4)


def test_text_from_a_regular_file_is_spoken(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("One two.")
    with text.open() as file, start_say("-o", "-", stdin=file.fileno()) as say:
        assert say.stdout
        pcm = say.stdout.read()
        assert say.wait() == 0
    assert spoken_words(np.frombuffer(pcm, "<i2"), SAMPLE_RATE) == pytest.approx(2, abs=0.4)


DOCUMENT = '<speak>One<break time="1s"/> <sub alias="two three">2</sub>.</speak>'
PROLOGUE = '<?xml version="1.0"?>\n<!-- a prompt -->\n'


@pytest.mark.parametrize(
    "arguments", [[DOCUMENT], ["--ssml", PROLOGUE + DOCUMENT], ["--ssml", f" {DOCUMENT}\n"]], ids=len
)
@pytest.mark.usefixtures("stand_in_voice")
def test_say_speaks_a_document(arguments: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out.wav"
    assert exit_code("say", *arguments, "-o", str(out)) == 0
    with wave.open(str(out)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    assert spoken_words(samples, SAMPLE_RATE) == pytest.approx(3, abs=0.4)
    assert len(samples) / SAMPLE_RATE == pytest.approx(3 * 0.2 + 1.0, abs=0.05)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["<speak>One\n <b>two</speak>"], "line 2, column 10: mismatched tag"),
        (["<speak>One"], "line 1, column 11: no element found"),
        (["--ssml", "One two."], "line 1, column 1: syntax error"),
        (["--ssml", "<p>One.</p>"], "line 1, column 1: the outermost element must be speak"),
    ],
)
@pytest.mark.usefixtures("stand_in_voice")
def test_a_fault_of_a_document_is_one_sentence_with_its_place_and_nothing_is_written(
    arguments: list[str], fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("say", *arguments, "-o", str(tmp_path / "out.wav")) == 1
    assert capsys.readouterr().err == f"vivavoce: SSML, {fault}\n"
    assert not (tmp_path / "out.wav").exists()


def test_a_document_on_a_pipe_is_spoken() -> None:
    with start_say("--ssml", "-o", "-") as say:
        pcm, _ = say.communicate((PROLOGUE + DOCUMENT).encode())
    assert say.returncode == 0
    assert spoken_words(np.frombuffer(pcm, "<i2"), SAMPLE_RATE) == pytest.approx(3, abs=0.4)


def test_a_closed_pipe_is_not_an_error() -> None:
    with start_say("-o", "-", "word " * 500) as say:
        assert say.stdout and say.stderr
        say.stdout.read(1000)
        say.stdout.close()
        assert say.wait() == 0
        assert b"Traceback" not in say.stderr.read()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings with which a server would have been started."""
    read: list[Settings] = []

    async def note(settings: Settings, **_: object) -> None:
        read.append(settings)

    monkeypatch.setattr("vivavoce.gateway.cli.commands.serve.process.serve", note)
    return read


def test_flags_set_the_media_of_asterisk_and_the_folder_of_recordings(
    tmp_path: Path, read: list[Settings]
) -> None:
    flags = ["--ari-media", "rtp", "--ari-codec", "slin16", "--recordings", str(tmp_path)]
    assert exit_code("serve", *flags) == 0
    (settings,) = read
    assert (settings.ari.media, settings.ari.codec) == ("rtp", "slin16")
    assert settings.recordings.folder == tmp_path


def test_the_password_of_asterisk_comes_from_the_first_line_of_a_file(
    tmp_path: Path, read: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "password"
    assert exit_code("serve", "--ari-password-file", str(file)) == 1
    assert capsys.readouterr().err.startswith(f"vivavoce: --ari-password-file: cannot read {file}")
    file.write_text("from file\nsecond line\n")
    assert exit_code("serve", "--ari-password-file", str(file)) == 0
    (settings,) = read
    assert settings.ari.password is not None
    assert settings.ari.password.get_secret_value() == "from file"


def test_the_settings_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("settings") == 0
    assert (
        "| `audiosocket.port` | `9092` | port of AudioSocket; 0 chooses a free one |"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(("given", "threads"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")])
def test_small_matrix_products_are_not_shared_by_threads(given: dict[str, str], threads: str) -> None:
    code = (
        "import os, sys\n"
        "from vivavoce.gateway.cli import run\n"
        "assert 'numpy' not in sys.modules\n"
        "sys.argv = ['vivavoce', '--version']\n"
        "try: run()\n"
        "except SystemExit: print(os.environ['OPENBLAS_NUM_THREADS'])\n"
    )
    inherited = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    result = subprocess.run(
        [sys.executable, "-c", code], env=inherited | given, capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[-1] == threads
