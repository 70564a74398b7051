"""Modules, definitions and files of this repository that documents and docstrings mention exist."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from namesrv_stream.settings.names import is_known, key_path

_ROOT: Final = Path(__file__).resolve().parents[3]
_PAGES: Final = ("CONTRIBUTING.md", "docs/architecture.md", "docs/adr/*.md")
_QUOTED: Final = re.compile(r"(`+)([\w./]+)(?:\(\))?\1")
_FILE: Final = re.compile(r"[\w./]*\w\.(?:py|sql|c|h|md)")
_NAME: Final = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+")
_OF_OTHERS: Final = "org|sys|ssl|pathlib|kafka|KafkaProducer|DeltaTable|Properties|kvConfig"
_OTHERS: Final = re.compile(rf"({_OF_OTHERS}|NAME|path|major|(\w+\.)?section)\.")  # and placeholders such as NAME


def _code() -> dict[str, ast.Module]:
    """Module → its syntax tree."""
    return {
        ".".join(path.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
            path.read_text(encoding="utf-8")
        )
        for pattern in ("namesrv_stream/**/*.py", "tests/support/*.py")
        for path in _ROOT.glob(pattern)
    }


def _defined(node: ast.AST) -> Iterator[str]:
    """Yield what a module, class or function defines, sets or imports, and ``Class.member``."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.ClassDef(name=name):
                yield from (name, *(f"{name}.{member}" for member in _defined(child)))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield from (name, *_defined(child))
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.alias(name=name):
                yield name
            case ast.Constant(value=str(text)) if _NAME.fullmatch(text):
                yield text  # a property of a table, or an option of Kafka or of RocketMQ
            case _:
                yield from _defined(child)


def _texts(code: Mapping[str, ast.Module]) -> Iterator[tuple[str, str]]:
    yield from ((path.name, path.read_text(encoding="utf-8")) for pages in _PAGES for path in _ROOT.glob(pages))
    for module, tree in code.items():
        for node in ast.walk(tree) if module.startswith("namesrv_stream") else ():
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield module, ast.get_docstring(node) or ""


def test_names_in_documents_and_docstrings_exist() -> None:
    code = _code()
    files = [f"/{path}" for pattern in ("*", "[a-z]*/**/*") for path in _ROOT.glob(pattern)]
    full = [f"{module}.{name}".split(".") for module, tree in code.items() for name in ("", *_defined(tree))]
    known = {".".join(parts[at:]).removesuffix(".") for parts in full for at in range(len(parts))}
    quoted = {(at, name) for at, text in _texts(code) for _, name in _QUOTED.findall(text) if not _OTHERS.match(name)}
    paths = {(where, name) for where, name in quoted if _FILE.fullmatch(name)}
    names = {(where, name) for where, name in quoted - paths if _NAME.fullmatch(name)}
    assert [at for at in sorted(paths) if not any(file.endswith(f"/{at[1]}") for file in files)] == []
    assert [at for at in sorted(names) if at[1] not in known and not is_known(key_path(at[1]))] == []
