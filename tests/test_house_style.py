"""Habits of the house that a machine can check: docstrings, short functions, few broad excepts, no state."""

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("models", "tts_engine", "adapters", "gateway")
# Where whatever a stranger's code raises ends one session or one connection, and no more.
BOUNDARIES = {
    "adapters/audiosocket/asyncio_protocol.py",
    "adapters/pipecat/audiosocket/server.py",
    "gateway/apis/dashscope/socket_api.py",
    "gateway/apis/dashscope/http_api.py",
    "gateway/apis/openai/speech_api.py",
    "gateway/apis/native_stream/socket_api.py",
    "gateway/calls/audiosocket.py",
    "gateway/browser/leg.py",
    "gateway/calls/clock.py",
    "tts_engine/cosyvoice/fault_isolation.py",
    "tts_engine/engine.py",
    "tts_engine/backends/process_child.py",
}
LONGEST_FUNCTION = 60  # lines


def files() -> list[PurePosixPath]:
    found = [ROOT / "__init__.py"] + [file for layer in LAYERS for file in (ROOT / layer).rglob("*.py")]
    return [PurePosixPath(file.relative_to(ROOT).as_posix()) for file in sorted(found)]


def tree_of(path: PurePosixPath) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def public_definitions(tree: ast.Module) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in tree.body:
        named = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if named and not node.name.startswith("_"):
            yield node


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the first statement that is not the docstring to the end."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def broad_excepts(tree: ast.Module) -> list[int]:
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler)
        and (
            node.type is None
            or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException"))
        )
    ]


def module_state(tree: ast.Module) -> list[int]:
    """Lines on which a module binds a list, dict or set that is empty or not named as a constant."""
    found = []
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if name != "__all__" and isinstance(value, ast.List | ast.Dict | ast.Set):
                empty = not (value.keys if isinstance(value, ast.Dict) else value.elts)
                if empty or not name.isupper():
                    found.append(node.lineno)
    return found


@pytest.mark.parametrize("path", files(), ids=str)
def test_a_module_says_what_it_is(path: PurePosixPath) -> None:
    assert ast.get_docstring(tree_of(path))


@pytest.mark.parametrize("path", files(), ids=str)
def test_public_classes_and_functions_have_a_docstring(path: PurePosixPath) -> None:
    silent = [
        f"{node.lineno}: {node.name}"
        for node in public_definitions(tree_of(path))
        if not ast.get_docstring(node)
    ]
    assert silent == []


@pytest.mark.parametrize("path", files(), ids=str)
def test_no_function_is_long(path: PurePosixPath) -> None:
    long = [
        f"{one.lineno}: {one.name}" for one in functions(tree_of(path)) if body_lines(one) > LONGEST_FUNCTION
    ]
    assert long == []


def test_functions_are_short() -> None:
    lengths = sorted(body_lines(function) for path in files() for function in functions(tree_of(path)))
    assert statistics.median(lengths) < 9
    assert lengths[len(lengths) * 9 // 10] < 35


@pytest.mark.parametrize("path", [path for path in files() if str(path) not in BOUNDARIES], ids=str)
def test_only_the_boundaries_catch_everything(path: PurePosixPath) -> None:
    assert broad_excepts(tree_of(path)) == []


@pytest.mark.parametrize("path", files(), ids=str)
def test_no_module_holds_state(path: PurePosixPath) -> None:
    assert module_state(tree_of(path)) == []


def test_the_checks_find_what_they_look_for() -> None:
    tree = ast.parse(
        "CACHE = {}\nRATES = {8: 1}\nseen = [1]\nclass A:\n"
        "    def f(self):\n        try:\n            pass\n        except Exception:\n            pass\n"
    )
    assert module_state(tree) == [1, 3]
    assert broad_excepts(tree) == [8]
    assert [node.name for node in public_definitions(tree) if not ast.get_docstring(node)] == ["A"]
    assert [body_lines(function) for function in functions(tree)] == [4]
