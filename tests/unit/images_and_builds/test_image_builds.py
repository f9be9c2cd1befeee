"""When an image is built again, and what the scripts say.

Aspects: the key follows the files that go in and nothing else; an image that is not built is named
with the command that builds it; a wrong name; the mirror for the stand-in base.
"""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from base import mirror
from recipes import RECIPES, ROOT
from store import Store

RECIPE = replace(RECIPES["operator"], inputs=("uv.lock", "operator"))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "operator").mkdir()
    for name in ("Dockerfile.operator", ".dockerignore", "uv.lock", "operator/main.py", "README"):
        (tmp_path / name).write_text(f"content of {name}")
    return tmp_path


@pytest.mark.parametrize("file", ["Dockerfile.operator", ".dockerignore", "operator/main.py"])
def test_a_change_of_what_goes_in_changes_the_key(checkout: Path, file: str) -> None:
    before = RECIPE.key(checkout, "1")
    (checkout / file).write_text("other content")
    assert RECIPE.key(checkout, "1") != before


def test_a_file_under_another_name_changes_the_key(checkout: Path) -> None:
    before = RECIPE.key(checkout, "1")
    (checkout / "operator" / "main.py").rename(checkout / "operator" / "other.py")
    assert RECIPE.key(checkout, "1") != before


def test_other_files_and_bytecode_do_not_change_the_key(checkout: Path) -> None:
    before = RECIPE.key(checkout, "1")
    (checkout / "README").write_text("other content")
    (checkout / "operator" / "__pycache__").mkdir()
    (checkout / "operator" / "__pycache__" / "main.cpython-311.pyc").write_bytes(b"\0")
    assert RECIPE.key(checkout, "1") == before


def test_each_tag_has_a_key_of_its_own(checkout: Path) -> None:
    assert RECIPE.key(checkout, "1") != RECIPE.key(checkout, "2")


def test_an_image_that_is_not_built_is_named_with_the_command_that_builds_it(
    tmp_path: Path,
) -> None:
    with pytest.raises(FileNotFoundError, match=r"grpo-trainer:1 .*images\.py build consumer"):
        Store(tmp_path).archive("consumer", "1")


def test_a_wrong_name_is_answered_with_the_legal_ones() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "hack" / "images" / "images.py", "build", "trainer"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "Invalid value: 'trainer': must be one of operator, consumer, producer" in done.stderr


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (
            "sources.list",
            "# deb http://no\ndeb [signed-by=/k] http://mirror/debian bookworm main\n",
        ),
        ("sources.list.d/a.sources", "Types: deb\n# x\nURIs: http://mirror/debian\nSuites: s\n"),
    ],
)
def test_the_mirror_is_read_from_either_kind_of_source(
    tmp_path: Path, file: str, text: str
) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "z.sources.disabled").write_text("URIs: http://disabled/\n")
    (tmp_path / file).write_text(text)
    assert mirror(tmp_path) == "http://mirror/debian"


def test_sources_without_a_mirror_are_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no source is a mirror"):
        mirror(tmp_path)
