"""Packaging: the list of packages, the source archive, and the wheel built from that archive."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

import vivavoce

ROOT = Path(__file__).parents[1]
LAYERS = ("models", "tts_engine", "adapters", "gateway")
NOT_SOURCE = shutil.ignore_patterns(
    ".git", ".venv*", ".links", "__pycache__", "*.egg-info", ".*_cache", ".hypothesis", "build", "dist", "out"
)


def package_folders() -> set[Path]:
    """Folders of the package, relative to the root, that hold Python files."""
    inner = {file.parent for layer in LAYERS for file in (ROOT / layer).rglob("*.py")}
    return {Path(), *(folder.relative_to(ROOT) for folder in inner)}


def files_to_ship() -> set[str]:
    """Every module and data file of the package, as its path inside ``vivavoce/``; no documents."""
    found = {"__init__.py", "py.typed"}
    for layer in LAYERS:
        for file in (ROOT / layer).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".md":
                found.add(file.relative_to(ROOT).as_posix())
    return found


def test_every_public_name_can_be_imported() -> None:
    assert [name for name in vivavoce.__all__ if getattr(vivavoce, name, None) is None] == []


def test_packages_in_pyproject_are_the_folders_on_disk() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    folders = {".".join(("vivavoce", *folder.parts)) for folder in package_folders()}
    assert set(settings["tool"]["setuptools"]["packages"]) == folders


def test_every_folder_of_the_package_is_a_package() -> None:
    assert [folder for folder in package_folders() if not (ROOT / folder / "__init__.py").is_file()] == []


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("source") / "checkout"  # the build leaves its own files beside the source
    shutil.copytree(ROOT, copy, ignore=NOT_SOURCE)
    return build(copy, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):  # from 3.11.4 on
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(unpacked)
    (source,) = unpacked.iterdir()
    return build(source, "wheel", tmp_path_factory.mktemp("wheel"))


def build(source: Path, kind: str, out: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", str(out), str(source)],
        capture_output=True,
        text=True,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    warnings = [
        line for line in said.splitlines() if re.search("warning|deprecat|absent", line, re.IGNORECASE)
    ]
    assert [line for line in warnings if "byte-compiling is disabled" not in line] == []
    (built,) = out.iterdir()
    return built


def test_the_source_archive_holds_everything_that_a_developer_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        file.relative_to(ROOT).as_posix()
        for folder in ("tests", "examples")
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and ".hypothesis" not in file.parts
    }
    wanted |= {"README.md", "CHANGELOG.md", "LICENSE", "NOTICE", "Makefile", ".ci/run", "pyproject.toml"}
    assert wanted - inside == set()


def test_the_wheel_holds_every_module_and_data_file_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    package = {name.removeprefix("vivavoce/") for name in inside if name.startswith("vivavoce/")}
    assert package == files_to_ship()
    assert {name.partition("/")[0].partition("-")[0] for name in inside} == {"vivavoce"}


def test_the_description_in_the_metadata_has_no_link_that_needs_the_repository(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    assert metadata["Author"] == "vivavoce contributors"
    description = metadata.get_payload()
    assert isinstance(description, str) and "Engine.open()" in description
    links = re.findall(r"\]\(([^)\s]+)\)", description)
    assert [link for link in links if not link.startswith("https://")] == []


@pytest.fixture(scope="module")
def bare_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the command pip, which finds the packages of the running one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    (site_packages / "others.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    python, pip = folder / "bin" / "python", folder / "bin" / "pip"
    pip.write_text(
        f"#!{python}\nfrom pip._internal.cli.main import main\nraise SystemExit(main())\n", "utf-8"
    )
    pip.chmod(0o755)
    return python


@pytest.mark.slow
def test_the_command_of_a_missing_extra_is_one_that_pip_carries_out(
    wheel: Path, bare_environment: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "checkout"
    shutil.copytree(ROOT, copy, ignore=NOT_SOURCE)
    pip = [str(bare_environment), "-m", "pip", "install", "--no-deps", "--no-index", "--no-build-isolation"]
    for source, expected in (([str(wheel)], str(wheel)), (["-e", str(copy)], f"-e '{copy}")):
        run([*pip, *source])
        message = "from vivavoce.tts_engine.errors import MissingExtra as m; print(m('a plot', 'plot'))"
        sentence = run([str(bare_environment), "-I", "-c", message])
        command = sentence.partition("not installed: ")[2].strip()
        assert command.startswith(f"{bare_environment.with_name('pip')} install") and expected in command
        flags = ["--dry-run", "--no-deps", "--no-index", "--no-build-isolation"]
        assert "does not provide the extra" not in run([*shlex.split(command), *flags])


def run(command: list[str]) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_wheel_carries_licence_and_notice(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {Path(name).name for name in archive.namelist() if ".dist-info/licenses/" in name}
    assert names == {"LICENSE", "NOTICE"}
