"""Counts that describe the product's structure: ``python tests/structure.py [ROOT]`` prints them.

Files and lines a folder, class names defined twice, lengths of functions, comment share, import circles. The
source is read with ``ast`` and ``tokenize``; nothing is imported. The style tests assert some of the counts.
"""

import ast
import gc
import io
import statistics
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

LAYERS = ("models", "tts_engine", "adapters", "gateway")
MAX_FILE_LINES = 400
MAX_FOLDER_FILES = 15


@dataclass(frozen=True, slots=True)
class Module:
    """One source file of the product."""

    path: PurePosixPath  # from the root
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """Dotted name inside the package, e.g. ``gateway.serve``."""
        return ".".join(self.path.with_suffix("").parts).removesuffix(".__init__")

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())


@cache
def modules(root: Path) -> list[Module]:
    """Every module of the product, in the order of their paths."""
    files = [root / "__init__.py"] + [file for layer in LAYERS for file in (root / layer).rglob("*.py")]
    texts = {file: file.read_text(encoding="utf-8") for file in sorted(files)}
    gc.disable()  # looking for garbage among the trees would take as long as parsing
    try:
        return [
            Module(PurePosixPath(file.relative_to(root).as_posix()), text, ast.parse(text))
            for file, text in texts.items()
        ]
    finally:
        gc.enable()


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Every node of a tree, which several checks look at."""
    return tuple(ast.walk(tree))


def duplicate_classes(found: list[Module]) -> dict[str, list[str]]:
    """Public class names with more than one definition, and the files that define them."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in found:
        for node in nodes(module.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(module.path))
    return {name: files for name, files in sorted(places.items()) if len(files) > 1}


def function_lengths(found: list[Module]) -> list[int]:
    """Lines of each function's body without its docstring, sorted."""
    return sorted(body_lines(function) for module in found for function in functions(module.tree))


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method, those inside others too."""
    return (node for node in nodes(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the first statement that is not the docstring to the end."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def comment_share(found: list[Module]) -> float:
    """Lines with a comment for each line of code; blank lines and docstrings are neither."""
    code, comments = 0, 0
    for module in found:
        lines_of_code, commented = _lines_by_kind(module)
        code += len(lines_of_code)
        comments += len(commented)
    return comments / code


def _lines_by_kind(module: Module) -> tuple[set[int], set[int]]:
    docstrings = set(_docstring_lines(module.tree))
    code: set[int] = set()
    comments: set[int] = set()
    layout = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in layout:
            code.update(range(token.start[0], token.end[0] + 1))
    return code - docstrings, comments


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and ast.get_docstring(node):
            yield from range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)


def imports(found: list[Module]) -> dict[str, set[str]]:
    """The modules of the product that each module imports, those for types and inside functions included."""
    names = {module.name for module in found}
    return {module.name: set(_imported(module, names)) - {module.name} for module in found}


def _imported(module: Module, names: set[str]) -> Iterator[str]:
    package = module.path.parent.parts
    for node in nodes(module.tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
            origin = ".".join(part for part in base if part)
            for alias in node.names:
                inner = f"{origin}.{alias.name}" if origin else alias.name
                yield from {inner if inner in names else origin} & names


def circles(found: list[Module]) -> list[list[str]]:
    """Groups of modules that import each other in a loop (strongly connected, more than one)."""
    graph = imports(found)
    reached = {name: _reachable(graph, name) for name in graph}
    groups = {
        frozenset({name, *(other for other in reached[name] if name in reached[other])}) for name in graph
    }
    return sorted(sorted(group) for group in groups if len(group) > 1)


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        for other in graph[todo.pop()] - seen:
            seen.add(other)
            todo.append(other)
    return seen


def folders(found: list[Module]) -> dict[str, tuple[int, int]]:
    """Files and lines of each folder without its sub-folders; an ``__init__`` without code does not count."""
    figures: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for module in found:
        if module.path.name == "__init__.py" and len(module.tree.body) <= 1:
            continue
        files, lines = figures[str(module.path.parent)]
        figures[str(module.path.parent)] = (files + 1, lines + module.lines)
    return dict(sorted(figures.items()))


def handwritten_openapi(found: list[Module]) -> int:
    """Lines of modules that are an OpenAPI document written by hand."""
    names = ("openapi_paths.py", "openapi_schemas.py", "openapi/paths.py", "openapi/schemas.py")
    return sum(module.lines for module in found if str(module.path).endswith(names))


def report(root: Path) -> str:
    """All figures, a line each."""
    found = modules(root)
    lengths = function_lengths(found)
    by_folder = folders(found)
    long_files = [f"{module.path} ({module.lines})" for module in found if module.lines > MAX_FILE_LINES]
    large = [f"{folder} ({files})" for folder, (files, _) in by_folder.items() if files > MAX_FOLDER_FILES]
    names = Counter({name: len(files) for name, files in duplicate_classes(found).items()})
    lines = [f"{folder:40} {files:3} files {count:6} lines" for folder, (files, count) in by_folder.items()]
    lines += [
        f"{'all of it':40} {len(found):3} files {sum(module.lines for module in found):6} lines",
        f"public class names defined twice: {len(names)} {dict(names) or ''}",
        f"function lengths: median {statistics.median(lengths):g}, p90 {lengths[len(lengths) * 9 // 10]}, "
        f"max {lengths[-1]} lines",
        f"files over {MAX_FILE_LINES} lines: {len(long_files)} {', '.join(long_files)}",
        f"folders over {MAX_FOLDER_FILES} files: {len(large)} {', '.join(large)}",
        f"comment lines for each line of code: {comment_share(found):.1%}",
        f"import circles: {len(circles(found))} {circles(found) or ''}",
        f"lines of handwritten OpenAPI: {handwritten_openapi(found)}",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(report(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]))
