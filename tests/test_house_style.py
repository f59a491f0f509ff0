"""Rules of the code style that a program can check: names, docstrings, lengths, excepts, state, structure."""

import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
import structure

ROOT = Path(__file__).parents[1]
# Files that catch every exception, so that an error ends one session or one connection and no more.
BOUNDARIES = {
    "adapters/audiosocket/pending_call.py",
    "adapters/pipecat/audiosocket/server.py",
    "adapters/media/clock.py",
    "adapters/media/servers/remote_media.py",
    "adapters/media/servers/phone_call.py",
    "gateway/access/grant_ends.py",
    "gateway/apis/dialects/cosyvoice_server/grpc_server.py",
    "gateway/apis/dialects/wyoming/dialect.py",
    "gateway/apis/kits/speech_response.py",
    "gateway/cluster/replicas/gateway_link.py",
    "gateway/cluster/replicas/replica_host.py",
    "gateway/apis/kits/websocket_connection.py",
    "gateway/cli/commands/serve/served_bundles.py",
    "gateway/calls/kits/leg_call.py",
    "gateway/calls/ways_in/sip/server.py",
    "tts_engine/voice_kit/fault_isolation.py",
    "tts_engine/threads/reader_thread.py",
    "tts_engine/threads/step_preparations.py",
    "tts_engine/threads/workers.py",
    "tts_engine/backends/process_child.py",
}
MAX_FUNCTION_LINES = 60
# A module docstring names the thing; it does not begin with a question.
QUESTION = re.compile(r"(What|Who|Whose|How|Whether|Where|When|Why)\b")


def listed(findings: list[str]) -> str:
    """All of them, which pytest abbreviates otherwise."""
    return "\n".join(findings)


def public_definitions(tree: ast.Module) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in tree.body:
        named = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if named and not node.name.startswith("_"):
            yield node


def broad_excepts(tree: ast.Module) -> list[int]:
    return [
        node.lineno
        for node in structure.nodes(tree)
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


@pytest.fixture(scope="module")
def modules() -> list[structure.Module]:
    """Every module; read when a test runs, as each process of pytest-xdist collects all tests."""
    return structure.modules(ROOT)


def test_a_module_has_a_docstring_that_names_it(modules: list[structure.Module]) -> None:
    docstrings = {str(module.path): ast.get_docstring(module.tree) for module in modules}
    wrong = [f"{path}: {text}" for path, text in docstrings.items() if not text or QUESTION.match(text)]
    assert not wrong, listed(wrong)


def test_public_classes_and_functions_have_a_docstring(modules: list[structure.Module]) -> None:
    undocumented = [
        f"{module.path}:{node.lineno}: {node.name}"
        for module in modules
        for node in public_definitions(module.tree)
        if not ast.get_docstring(node)
    ]
    assert not undocumented, listed(undocumented)


def test_no_function_is_long(modules: list[structure.Module]) -> None:
    long = [
        f"{module.path}:{function.lineno}: {function.name}"
        for module in modules
        for function in structure.functions(module.tree)
        if structure.body_lines(function) > MAX_FUNCTION_LINES
    ]
    assert not long, listed(long)


def test_functions_are_short(modules: list[structure.Module]) -> None:
    lengths = structure.function_lengths(modules)
    assert statistics.median(lengths) < 9
    assert lengths[len(lengths) * 9 // 10] < 35


def test_a_public_class_name_is_defined_once(modules: list[structure.Module]) -> None:
    assert structure.duplicate_classes(modules) == {}


def test_modules_do_not_import_each_other_in_circles(modules: list[structure.Module]) -> None:
    assert structure.circles(modules) == []


def test_a_folder_holds_few_files(modules: list[structure.Module]) -> None:
    folders = structure.folders(modules)
    assert {
        folder: files for folder, (files, _) in folders.items() if files > structure.MAX_FOLDER_FILES
    } == {}


def test_only_the_boundaries_catch_every_exception(modules: list[structure.Module]) -> None:
    others = [module for module in modules if str(module.path) not in BOUNDARIES]
    found = [f"{module.path}:{line}" for module in others for line in broad_excepts(module.tree)]
    assert not found, listed(found)


def test_the_boundaries_are_files(modules: list[structure.Module]) -> None:
    assert BOUNDARIES - {str(module.path) for module in modules} == set()


def test_a_module_holds_no_state(modules: list[structure.Module]) -> None:
    found = [f"{module.path}:{line}" for module in modules for line in module_state(module.tree)]
    assert not found, listed(found)


def test_the_checks_find_violations() -> None:
    text = (
        "CACHE = {}\nRATES = {8: 1}\nseen = [1]\nclass A:\n"
        "    def f(self):\n        try:\n            pass\n        except Exception:\n            pass\n"
    )
    tree = ast.parse(text)
    assert module_state(tree) == [1, 3]
    assert broad_excepts(tree) == [8]
    assert [node.name for node in public_definitions(tree) if not ast.get_docstring(node)] == ["A"]
    assert [structure.body_lines(function) for function in structure.functions(tree)] == [4]


def test_the_structure_checks_find_violations() -> None:
    sources = {"a/x.py": "from .y import f\nclass A: ...", "a/y.py": "from .x import A\nclass A: ..."}
    found = [structure.Module(PurePosixPath(path), text, ast.parse(text)) for path, text in sources.items()]
    assert structure.circles(found) == [["a.x", "a.y"]]
    assert structure.duplicate_classes(found) == {"A": ["a/x.py", "a/y.py"]}
    assert QUESTION.match("What a session is.")
