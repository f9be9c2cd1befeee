"""Scripts that run in an environment of their own: they declare every library they import."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
METADATA = re.compile(r"^# /// script\n((?:# .*\n|#\n)+)# ///$", re.MULTILINE)
FOLDERS = ("benchmarks", "docs", "hack")
SCRIPTS = [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
    if METADATA.search(path.read_text())
]


def declared(text: str) -> set[str]:
    """The names of the dependencies in the metadata block (PEP 723)."""
    found = METADATA.search(text)
    assert found is not None
    body = "".join(line[2:] for line in found[1].splitlines(keepends=True))
    return {re.split(r"[^\w.-]", d)[0] for d in tomllib.loads(body)["dependencies"]}


def imported(text: str) -> set[str]:
    """Top-level modules outside the standard library."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names


def test_the_scripts_that_draw_pictures_are_found() -> None:
    names = {str(path.relative_to(ROOT)) for path in SCRIPTS}
    assert {"hack/dashboards/draw.py", "docs/images/quickstart.py"} <= names


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_declares_exactly_what_it_imports(path: Path) -> None:
    assert imported(path.read_text()) == declared(path.read_text())
