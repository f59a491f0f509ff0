"""The direction of imports and the use of I/O, read from the source with ``ast``; nothing is executed.

Imports inside functions and ``importlib.import_module("...")`` count as well.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import pytest
from structure import modules, nodes

ROOT = Path(__file__).parents[1]
LAYERS = ("models", "tts_engine", "adapters", "gateway")

# The arrows: gateway -> adapters -> tts_engine -> models, and gateway -> tts_engine.
MAY_IMPORT = {
    "models": {"models"},
    "tts_engine": {"tts_engine", "models"},
    "adapters": {"adapters", "tts_engine"},
    "gateway": {"gateway", "adapters", "tts_engine"},
    "": {"tts_engine"},  # the public face
}
# Adapters of frameworks, which use the framework's sockets; ``*`` matches sub-folders too.
PLUG_INS = (
    "adapters/pipecat/*.py",
    "adapters/webrtc/*.py",
    "adapters/client/*.py",
    "adapters/media/servers/process.py",
    "adapters/voice_activity.py",
)
TENSOR_PACKAGES = {"torch", "onnxruntime", "tensorrt", "onnx", "hibari", "TTS"}
TENSOR_HOMES = ("models/*.py", "tts_engine/runner*.py", "tts_engine/*_runner.py")
# Adapters of the standard library or a codec library, and what each may import besides.
ALLOWED_PACKAGES = {
    "adapters/audio/resample.py": {"soxr"},  # rates at which delay does not matter
    "adapters/audio/format_kit/ffmpeg_audio.py": {"av"},  # frames and their rates, in memory
    "adapters/audio/format_kit/ffmpeg_encoder.py": {"av"},  # MP3, AAC, Opus and FLAC, in memory
    "adapters/audio/tempo.py": {"av"},  # FFmpeg's filters, in memory
    "adapters/audio/input_resampler.py": {"av"},  # frames of a WebRTC track
    "adapters/audiosocket/pending_call.py": {"asyncio", "os", "socket"},  # a connection before its call id
    "adapters/audiosocket/wire.py": {"socket", "sys"},  # the socket of a call, and its options
    "adapters/audiosocket/server.py": {"asyncio", "socket"},  # listens on the socket of its caller
    "adapters/media/clock.py": {"asyncio", "time"},  # the clock
    "adapters/media/servers/link.py": {"asyncio", "os", "socket"},  # the two ends of a socket pair
    "adapters/media/servers/media_servers.py": {
        "asyncio",
        "logging",
        "os",
        "socket",
        "subprocess",
        "sys",
        "threading",
    },
    "adapters/media/servers/phone_call.py": {"time"},  # a call of a media server
    "adapters/media/servers/remote_media.py": {"os", "socket", "time"},  # keeps the socket of a call
    "adapters/speech_network.py": {"pathlib"},  # reads the installed weights, once a process
    "adapters/rtp/wire.py": {"socket", "time"},  # the sockets of a call; reports have the wall clock
    "adapters/rtp/srtp.py": {"pylibsrtp"},  # encryption, in memory
    "adapters/audio/format_kit/line_codec_state.py": {"av"},  # G.722 and Opus, in memory
    "adapters/media/phone_media.py": {"socket"},  # the socket of a call
    "adapters/media/servers/server.py": {"asyncio", "socket", "time"},  # a media server's event loop
}
PUBLIC_VALUES_OF_ENGINE = {
    "vivavoce.tts_engine.chunk",
    "vivavoce.tts_engine.errors",
    "vivavoce.tts_engine.reading.pronunciation.ipa",
    "vivavoce.tts_engine.reading.pronunciation.pinyin",
    "vivavoce.tts_engine.reading.pronunciation.lexicon",
    "vivavoce.tts_engine.reading.prosody",
    "vivavoce.tts_engine.process_limits",  # the number of cores
}
# Standard library modules for I/O, clocks, threads and logs, which a protocol core does not import.
NOT_IN_A_CORE = {
    "asyncio",
    "concurrent",
    "http",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "queue",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "socketserver",
    "ssl",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "urllib",
}
NETWORK_PACKAGES = {
    "aiohttp",
    "fastapi",
    "http",
    "httpx",
    "requests",
    "socket",
    "socketserver",
    "ssl",
    "starlette",
    "urllib",
    "uvicorn",
    "websockets",
}
COMMAND_LINE_PACKAGES = {"click", "rich", "tomllib"}
LIBRARY_SWITCHES = PurePosixPath("__init__.py")  # which every process runs before it imports a library
# They read TOML that is data, not configuration.
WORD_TABLE_LOADERS = {
    "tts_engine/reading/kit/data_files.py",
    "tts_engine/reading/pronunciation/formats/toml.py",
    "models/phonemes/origins/name_origin.py",
}


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module."""

    target: str  # absolute dotted name
    line: int
    lazy: bool  # imported inside a function or for types only
    written: str  # the absolute name as written in the source, "" for a relative import

    @property
    def package(self) -> str:
        return self.target.partition(".")[0]

    @property
    def layer(self) -> str | None:
        """The imported layer of this package; None for other packages and for names of the root."""
        parts = self.target.split(".")
        inside = parts[0] == "vivavoce" and len(parts) > 1 and parts[1] in LAYERS
        return parts[1] if inside else None


def layer_of(path: PurePosixPath) -> str:
    return path.parts[0] if len(path.parts) > 1 else ""


def is_plug_in(path: PurePosixPath) -> bool:
    return any(fnmatch(str(path), pattern) for pattern in PLUG_INS)


def imports_of(path: PurePosixPath, tree: ast.Module) -> Iterator[Import]:
    lazy_lines = {
        inner.lineno
        for outer in nodes(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef) or _is_for_types_only(outer)
        for inner in ast.walk(outer)
        if isinstance(inner, ast.Import | ast.ImportFrom | ast.Call)
    }
    for node in nodes(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield Import(alias.name, node.lineno, node.lineno in lazy_lines, alias.name)
            case ast.ImportFrom(module=module, names=names, level=0):
                for alias in names:
                    yield Import(
                        f"{module}.{alias.name}", node.lineno, node.lineno in lazy_lines, str(module)
                    )
            case ast.ImportFrom(module=module, names=names, level=level):
                base = _relative_base(path, level, module)
                for alias in names:
                    yield Import(f"{base}.{alias.name}", node.lineno, node.lineno in lazy_lines, "")
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__")
            ):
                yield from _import_by_name(path, node, node.lineno in lazy_lines)


def _is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _import_by_name(path: PurePosixPath, call: ast.Call, lazy: bool) -> Iterator[Import]:
    match call.args:
        case [ast.Constant(value=str(name)), *_]:
            relative = len(name) - len(name.lstrip("."))
            target = _relative_base(path, relative, name.lstrip(".")) if relative else name
            yield Import(target, call.lineno, lazy, "" if relative else name)


def _relative_base(path: PurePosixPath, level: int, module: str | None) -> str:
    package = ["vivavoce", *path.parts[:-1]]
    return ".".join([*package[: len(package) - level + 1], *([module] if module else [])])


def violations(path: PurePosixPath, tree: ast.Module) -> list[str]:
    """Every broken rule in one file of the package, as ``path:line: complaint``."""
    found = [
        (entry.line, complaint)
        for entry in imports_of(path, tree)
        for complaint in _complaints_about_import(path, entry)
    ]
    found += _environment_reads(path, tree)
    if layer_of(path) == "adapters" and not is_plug_in(path):
        found += _files_opened(tree)
    return [f"{path}:{line}: {complaint}" for line, complaint in sorted(set(found))]


def _complaints_about_import(path: PurePosixPath, entry: Import) -> Iterator[str]:
    layer = layer_of(path)
    if entry.written.partition(".")[0] == "vivavoce":
        yield f"absolute import of {entry.written}; write it relative"
    if entry.written.partition(".")[0] in LAYERS:
        yield f"top-level import of {entry.written}; it collides with a user's own folder"
    if entry.layer is not None and entry.layer not in MAY_IMPORT[layer]:
        yield f"{layer or 'the root'} imports {entry.target}: a wrong arrow"
    if entry.package in TENSOR_PACKAGES and not any(fnmatch(str(path), home) for home in TENSOR_HOMES):
        yield f"{entry.package} belongs in models/ and the engine's runners"
    if entry.package in NETWORK_PACKAGES and layer in ("models", "tts_engine"):
        yield f"{entry.package}: no network below the adapters"
    reads_word_tables = entry.package == "tomllib" and str(path) in WORD_TABLE_LOADERS
    if entry.package in COMMAND_LINE_PACKAGES and layer != "gateway" and not reads_word_tables:
        yield f"{entry.package}: command line and configuration belong to the gateway"
    if layer == "adapters" and not is_plug_in(path):
        yield from _complaints_about_core(path, entry)
    yield from _complaints_about_plug_in_use(path, entry)


def _complaints_about_core(path: PurePosixPath, entry: Import) -> Iterator[str]:
    if entry.layer == "tts_engine" and not any(
        entry.target == module or entry.target.startswith(f"{module}.") for module in PUBLIC_VALUES_OF_ENGINE
    ):
        yield f"a protocol core imports only value types of the engine, not {entry.target}"
    if entry.package == "vivavoce":
        return
    allowed = ALLOWED_PACKAGES.get(str(path), set())
    if entry.package in NOT_IN_A_CORE - allowed:
        yield f"{entry.package}: a protocol core has no I/O, no clock and no log"
    elif entry.package not in sys.stdlib_module_names | {"numpy", "audioop"} | allowed:
        yield f"{entry.package}: a protocol core imports the standard library and numpy only"


def file_of(target: str) -> PurePosixPath:
    """The file that defines an imported name, or the name as a path if there is none."""
    parts = target.split(".")[1:]
    for stop in range(len(parts), 0, -1):
        file = PurePosixPath(*parts[:stop]).with_suffix(".py")
        if (ROOT / file).is_file():
            return file
    return PurePosixPath(*parts).with_suffix(".py")


def _complaints_about_plug_in_use(path: PurePosixPath, entry: Import) -> Iterator[str]:
    if entry.layer != "adapters" or is_plug_in(path):
        return
    module = file_of(entry.target)
    if not is_plug_in(module):
        return
    if layer_of(path) != "gateway":
        yield f"only the gateway mounts {module}"
    elif not entry.lazy:
        yield f"{module} is imported where it is mounted, inside a function"


def _environment_reads(path: PurePosixPath, tree: ast.Module) -> list[tuple[int, str]]:
    if layer_of(path) == "gateway" or path == LIBRARY_SWITCHES:
        return []
    names = {"environ", "environb", "getenv", "getenvb", "putenv", "expandvars"}
    found = []
    for node in nodes(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="os" | "path"), attr=name) if name in names:
                found.append((node.lineno, f"os.{name}: only the gateway reads the environment"))
            case ast.Attribute(value=ast.Attribute(attr="path"), attr="expandvars"):
                found.append((node.lineno, "os.path.expandvars: only the gateway reads the environment"))
            case ast.ImportFrom(module="os" | "os.path", names=aliases):
                found += [
                    (node.lineno, f"os.{alias.name}: only the gateway reads the environment")
                    for alias in aliases
                    if alias.name in names
                ]
    return found


def _files_opened(tree: ast.Module) -> list[tuple[int, str]]:
    return [
        (node.lineno, "open(): a protocol core has no I/O")
        for node in nodes(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
    ]


def test_imports_follow_the_rules() -> None:
    found = [line for module in modules(ROOT) for line in violations(module.path, module.tree)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("tts_engine/engine.py", "from ..adapters.playout import Playout", "wrong arrow"),
        ("tts_engine/engine.py", "from .. import gateway", "wrong arrow"),
        ("models/hibari/voice.py", "from ...tts_engine.engine import Engine", "wrong arrow"),
        ("models/deep/net.py", "from ...tts_engine import engine", "wrong arrow"),
        ("adapters/audio/pcm.py", "from ...gateway import calls", "wrong arrow"),
        ("adapters/audio/pcm.py", "def f():\n    from ...models import hibari", "wrong arrow"),
        ("gateway/serve.py", "from ..models.packaged import Voice", "wrong arrow"),
        ("gateway/cli/bench/call.py", "from ....models.hibari.voice import HibariVoice", "wrong arrow"),
        (
            "models/hibari/voice.py",
            "if TYPE_CHECKING:\n    from ...tts_engine.engine import Engine",
            "wrong arrow",
        ),
        (
            "gateway/serve.py",
            "import importlib\nimportlib.import_module('..models.x', __package__)",
            "wrong arrow",
        ),
        ("__init__.py", "from .gateway.cli import main", "wrong arrow"),
        ("gateway/serve.py", "import vivavoce.adapters.audio.pcm", "absolute import"),
        ("gateway/serve.py", "from vivavoce import Engine", "absolute import"),
        ("gateway/serve.py", "import importlib\nimportlib.import_module('vivavoce.x')", "absolute import"),
        ("gateway/serve.py", "from adapters import audio", "top-level import"),
        ("gateway/serve.py", "import tts_engine.engine", "top-level import"),
        ("tts_engine/engine.py", "import torch", "torch belongs"),
        ("tts_engine/scheduler.py", "from onnxruntime import InferenceSession", "onnxruntime belongs"),
        ("gateway/web/app.py", "def f():\n    import torch.nn", "torch belongs"),
        ("adapters/audio/pcm.py", "import soxr", "standard library and numpy only"),
        ("adapters/audio/resample.py", "from scipy.signal import firwin", "standard library and numpy only"),
        ("adapters/audiosocket/protocol.py", "import asyncio", "no I/O, no clock"),
        ("adapters/playback/playout.py", "from time import monotonic", "no I/O, no clock"),
        ("adapters/playback/playout.py", "import logging", "no I/O, no clock"),
        ("adapters/audio/pcm.py", "def f(p):\n    return open(p).read()", "open()"),
        (
            "adapters/playback/playout.py",
            "from ...tts_engine.stream import Stream",
            "only value types of the engine",
        ),
        (
            "adapters/playback/playout.py",
            "from ...tts_engine import engine",
            "only value types of the engine",
        ),
        ("adapters/playback/playout.py", "from ..webrtc.peer import BrowserPeer", "only the gateway mounts"),
        ("gateway/web/app.py", "from ...adapters.webrtc.peer import BrowserPeer", "inside a function"),
        ("gateway/web/app.py", "from ...adapters.pipecat import engine_tts_service", "inside a function"),
        ("models/hibari/voice.py", "import os\nhome = os.environ['HOME']", "environment"),
        ("tts_engine/engine.py", "from os import getenv", "environment"),
        ("adapters/client/pool.py", "import os\nkey = os.getenv('KEY')", "environment"),
        ("tts_engine/bundle.py", "import os.path\np = os.path.expandvars('$X')", "environment"),
        ("tts_engine/engine.py", "import socket", "no network"),
        ("models/hibari/voice.py", "import urllib.request", "no network"),
        ("tts_engine/engine.py", "import click", "command line"),
        ("models/hibari/voice.py", "from rich.progress import Progress", "command line"),
    ],
)
def test_a_forbidden_import_is_found(path: str, source: str, complaint: str) -> None:
    found = violations(PurePosixPath(path), ast.parse(source))
    assert len(found) == 1, found
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("__init__.py", "from .tts_engine.engine import Engine"),
        ("gateway/serve.py", "import os\nfrom .. import __version__\nx = os.environ"),
        (
            "gateway/serve.py",
            "from ..adapters.playback.playout import Playout\nfrom ..tts_engine.engine import Engine",
        ),
        ("gateway/web/app.py", "def mount():\n    from ...adapters.webrtc.peer import BrowserPeer"),
        ("gateway/web/app.py", "if TYPE_CHECKING:\n    from ...adapters.webrtc.peer import BrowserPeer"),
        ("adapters/webrtc/peer.py", "import asyncio\nimport aiortc\nfrom ..tts_engine.engine import Engine"),
        (
            "adapters/audio/pcm.py",
            "import audioop\nimport struct\nimport numpy as np\nfrom . import resample",
        ),
        (
            "adapters/playback/playout.py",
            "from ..tts_engine.chunk import AudioChunk\nfrom ..tts_engine import errors",
        ),
        ("adapters/audio/resample.py", "import soxr"),
        ("models/hibari/voice.py", "import onnxruntime\nfrom hibari import g2p"),
        ("tts_engine/runner.py", "import onnxruntime\nfrom ..models import packaged"),
        ("tts_engine/engine.py", "import asyncio\nimport threading\nimport os\nn = os.cpu_count()"),
    ],
)
def test_allowed_imports_pass(path: str, source: str) -> None:
    assert violations(PurePosixPath(path), ast.parse(source)) == []


def test_the_check_reads_the_whole_package() -> None:
    files = [module.path for module in modules(ROOT)]
    assert {layer_of(path) for path in files} == {"", *LAYERS}
    assert PurePosixPath("gateway/cli/bench/report.py") in files
