"""The command that adds an extra, for each way in which vivavoce may have been installed."""

import json
import shlex
import sys
from importlib import metadata
from pathlib import Path

import pytest

from vivavoce.tts_engine.errors import MissingExtra
from vivavoce.tts_engine.packaging import installation
from vivavoce.tts_engine.packaging.installation import install_command


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an environment of pip, which is also the working directory."""
    pip = tmp_path / ".venv" / "bin" / "pip"
    pip.parent.mkdir(parents=True)
    pip.touch()
    monkeypatch.setattr(sys, "executable", str(pip.with_name("python")))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, origin: dict[str, object] | None) -> None:
    """Let the metadata of vivavoce be those of an installation from ``origin`` (PEP 610)."""
    info = folder / "site-packages" / "vivavoce-0.1.0.dist-info"
    info.mkdir(parents=True)
    extras = ('torch==2.13.0; extra == "cosyvoice"', 'wetext<0.2,>=0.1.8; extra == "cosyvoice"', "numpy<3")
    lines = ["Metadata-Version: 2.4", "Name: vivavoce", *(f"Requires-Dist: {line}" for line in extras)]
    (info / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin), encoding="utf-8")
    found = metadata.PathDistribution(info)
    monkeypatch.setattr(metadata, "distribution", lambda name: found)


def test_a_checkout_in_the_working_directory_is_a_dot(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, environment, {"url": environment.as_uri(), "dir_info": {"editable": True}})
    assert install_command("pipecat") == ".venv/bin/pip install -e '.[pipecat]'"
    assert str(MissingExtra("a plot", "plot")) == (
        "a plot needs the extra 'plot', which is not installed: .venv/bin/pip install -e '.[plot]'"
    )


def test_a_checkout_elsewhere_is_an_absolute_path(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = environment / "a checkout"
    checkout.mkdir()
    install(monkeypatch, environment, {"url": checkout.as_uri(), "dir_info": {"editable": True}})
    assert install_command("stt") == ".venv/bin/pip install -e './a checkout[stt]'"
    elsewhere = environment / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    expected = [f"{environment}/.venv/bin/pip", "install", "-e", f"{checkout}[stt]"]
    assert shlex.split(install_command("stt")) == expected


def test_a_wheel_is_named_again(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = environment / "vivavoce-0.1.0-py3-none-any.whl"
    wheel.touch()
    install(monkeypatch, environment, {"url": wheel.as_uri(), "archive_info": {}})
    assert install_command("stt") == ".venv/bin/pip install './vivavoce-0.1.0-py3-none-any.whl[stt]'"


def test_a_wheel_that_is_gone_gives_the_packages_of_the_extra(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, environment, {"url": "file:///gone/vivavoce-0.1.0-py3-none-any.whl"})
    assert install_command("cosyvoice") == ".venv/bin/pip install torch==2.13.0 'wetext<0.2,>=0.1.8'"


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        (None, "vivavoce[stt]"),
        (
            {"url": "https://example.org/v.git", "vcs_info": {"vcs": "git", "commit_id": "1f6d145"}},
            "vivavoce[stt] @ git+https://example.org/v.git@1f6d145",
        ),
        (
            {"url": "https://example.org/v.whl", "archive_info": {}},
            "vivavoce[stt] @ https://example.org/v.whl",
        ),
    ],
)
def test_an_index_and_a_url_are_named_again(
    origin: dict[str, object] | None,
    requirement: str,
    environment: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, environment, origin)
    assert shlex.split(install_command("stt")) == [".venv/bin/pip", "install", requirement]


def test_code_that_is_not_installed_is_installed_from_its_folder(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_found(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", not_found)
    folder = Path(installation.__file__).parents[2]
    assert shlex.split(install_command("stt"))[1:] == ["install", "-e", f"{folder}[stt]"]


def test_an_environment_without_a_pip_program_runs_the_module(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (environment / ".venv" / "bin" / "pip").unlink()
    install(monkeypatch, environment, None)
    assert install_command("stt") == ".venv/bin/python -m pip install 'vivavoce[stt]'"
