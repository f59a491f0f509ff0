"""Names and descriptions of the files of a bundle, and the error of one that cannot be used. No torch."""

import errno
import re
import stat
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

TensorShape = tuple[int, ...]
TensorShapes = dict[str, TensorShape]


class WeightFileError(ValueError):
    """A weight file cannot be used; the message names it, what was found and what is expected."""


def weight_path(folder: Path, name: str) -> Path:
    """Path of the file that holds ``name`` (e.g. llm.pt): the converted one if it exists."""
    converted = (folder / name).with_suffix(".safetensors")
    return converted if converted.exists() else folder / name


def require_file(path: Path) -> None:
    """Raise OSError unless the path is a plain file: reading from a pipe would block."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder, expected a file", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "is not a plain file", str(path))


def is_web_page(path: Path) -> bool:
    """Whether a file begins as HTML does: a page that was saved in place of a download."""
    with path.open("rb") as file:
        return _WEB_PAGE.match(file.read(_WEB_PAGE_HEAD_BYTES)) is not None


_WEB_PAGE_HEAD_BYTES = 4096
# A byte order mark, comments and an XML declaration may come first.
_WEB_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s+|<!--.*?-->|<\?.*?\?>)*<(?:!doctype\s+html|html|head|title|body)\b",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class BundleFile:
    """One file of a bundle."""

    name: str  # relative to the bundle
    size_bytes: int
    checked: str  # what the check compared, for people


class BundleSize(Enum):
    """Size of a bundle with random weights: TINY is for tests, FULL has the released sizes."""

    TINY = "tiny"
    FULL = "full"
