"""The pip command that adds an extra to the running installation of vivavoce.

Source: PEP 610, direct_url.json: pip records where a distribution was installed from.
"""

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_DISTRIBUTION = "vivavoce"
_SOURCE_FOLDER = Path(__file__).parents[2]


def install_command(extra: str) -> str:
    """Return the shell command that installs an extra, or several ("pipecat,stt"), into this environment.

    An editable checkout gives ``.venv/bin/pip install -e '.[pipecat]'``; paths are relative where they lie in
    the working directory. A wheel or a folder is named again with the extra. If it no longer exists, the
    command lists the packages of the extra.
    """
    return shlex.join([*_pip(), "install", *_arguments(extra)])


def _pip() -> list[str]:
    pip = Path(sys.executable).with_name("pip")
    return [_short(pip)] if pip.exists() else [_short(Path(sys.executable)), "-m", "pip"]


def _arguments(extra: str) -> list[str]:
    from importlib import metadata  # on demand: it is slow to import, and most runs miss no extra

    try:
        distribution = metadata.distribution(_DISTRIBUTION)
    except metadata.PackageNotFoundError:  # imported from the source folder
        return ["-e", f"{_local(_SOURCE_FOLDER)}[{extra}]"]
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    url = str(origin.get("url", ""))
    if not url:  # from a package index
        return [f"{_DISTRIBUTION}[{extra}]"]
    if not url.startswith("file:"):
        return [f"{_DISTRIBUTION}[{extra}] @ {_remote(url, origin.get('vcs_info'))}"]
    source = _path_of(url)
    if not source.exists():
        return _packages(distribution, extra)
    editable = ["-e"] if origin.get("dir_info", {}).get("editable") else []
    return [*editable, f"{_local(source)}[{extra}]"]


def _path_of(url: str) -> Path:
    """The path of ``file:///a%20b``."""
    path = url.removeprefix("file://").encode()
    decoded = re.sub(rb"%([0-9A-Fa-f]{2})", lambda code: bytes.fromhex(code[1].decode()), path)
    return Path(decoded.decode(errors="replace"))


def _remote(url: str, version_control: dict[str, str] | None) -> str:
    if version_control is None:
        return url
    return f"{version_control['vcs']}+{url}@{version_control['commit_id']}"


def _packages(distribution: "Distribution", extra: str) -> list[str]:
    """The requirements of extras: ``torch==2.13.0; extra == "cosyvoice"`` is one line of the metadata."""
    markers = [f'extra == "{name}"' for name in extra.split(",")]
    lines = [line.partition(";") for line in distribution.requires or ()]
    return [name.strip() for name, _, given in lines if any(marker in given for marker in markers)]


def _local(path: Path) -> str:
    """The path as a requirement: pip takes a name without a separator for a package."""
    short = _short(path)
    return short if short == "." or os.path.isabs(short) else os.path.join(".", short)


def _short(path: Path) -> str:
    try:
        return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
    except OSError:  # the working directory was removed
        return str(path)
