"""Check the installed dependencies for known advisories: ``make audit``.

The versions in ``advisories.toml`` are compared without a network. pip-audit, if it is installed, then asks
the service of PyPI for the advisories of all that is installed.
"""

import importlib.util
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.version import Version

ADVISORIES = Path(__file__).with_name("advisories.toml")


def min_versions() -> dict[str, tuple[str, str]]:
    """Return the oldest version without a known advisory, and the advisories, by name of the package."""
    table = tomllib.loads(ADVISORIES.read_text(encoding="utf-8"))
    return {name: (oldest, advisories) for name, (oldest, advisories) in table.items()}


def outdated_packages() -> list[str]:
    """Return a line for each installed package that has a known advisory."""
    found = []
    for name, (oldest, advisories) in min_versions().items():
        try:
            installed = version(name)
        except PackageNotFoundError:
            continue
        if Version(installed) < Version(oldest):
            found.append(f"{name} {installed} is installed; {oldest} mends {advisories}")
    return found


def main() -> int:
    """Print what is outdated; return the exit status."""
    outdated = outdated_packages()
    print("\n".join(outdated) or f"{len(min_versions())} packages checked: none has a known advisory")
    if importlib.util.find_spec("pip_audit") is None:
        print("pip-audit is not installed: pip install pip-audit asks PyPI for the latest advisories, too")
        return bool(outdated)
    return bool(outdated) or subprocess.run([sys.executable, "-m", "pip_audit", "--local"]).returncode


if __name__ == "__main__":
    sys.exit(main())
