"""The shape of the repository: source roots that shadow nothing, and light imports."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def test_the_standard_operator_module_wins_from_the_root_of_the_repository() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import operator; print(operator.__file__)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(done.stdout.strip()).is_relative_to(sysconfig.get_path("stdlib"))


@pytest.mark.parametrize("root", ["operator", "trainer"])
def test_a_source_root_is_no_package(root: str) -> None:
    assert not (ROOT / root / "__init__.py").exists()


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("grpo_trainer.spec", ("torch", "ray", "numpy", "yaml")),
        ("grpo_trainer.cli", ("torch", "ray", "transformers", "numpy")),
        ("grpo_trainer.driver", ("torch", "ray", "transformers")),
        ("grpo_trainer.messages", ("torch", "ray", "pydantic")),
        ("grpo_operator", ("torch", "ray", "numpy", "transformers")),
    ],
)
def test_importing_a_light_module_loads_nothing_heavy(module: str, heavy: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print(*[m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
