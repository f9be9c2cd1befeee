"""Examples in the documentation: manifests validate, command lines parse, rows, rewards and
environments load."""

import re
import shlex
from typing import Any

import pytest
import yaml

from grpo_trainer.cli.main import build_parser
from grpo_trainer.cli.manifests import Document, read_documents
from grpo_trainer.data import load_rows
from grpo_trainer.messages import Row
from grpo_trainer.rewards import make_reward, row_needs
from grpo_trainer.spec import API_VERSION, KIND
from grpo_trainer.spec.reward import CustomRewardSpec, RewardSpec, RewardType
from grpo_trainer.spec.training import DatasetSpec
from unit.docs.pages import PAGES, ROOT, Block, blocks

_JOB = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "example"}}
_COMMAND = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?grpo (.+?)(?:  .*)?$", re.MULTILINE)


def manifests() -> list[Document]:
    """Whole jobs and, under the key `spec` alone, parts of one."""
    found = []
    for block in blocks("yaml"):
        for data in yaml.safe_load_all(block.text):
            if isinstance(data, dict) and data.keys() == {"spec"}:
                found.append(Document(str(block), {**_JOB, **data}))
            elif isinstance(data, dict) and data.get("kind") == KIND:
                found.append(Document(str(block), data))
    return found


def commands() -> list[str]:
    """The lines that call `grpo`, without what is said of them after two spaces."""
    return [line for block in blocks("", "sh", "console") for line in _COMMAND.findall(block.text)]


@pytest.mark.parametrize("document", manifests(), ids=lambda document: document.source)
def test_a_manifest_in_the_documentation_is_valid(document):
    document.parse()


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name
)
def test_an_example_is_valid(path):
    for document in read_documents(str(path)):
        document.parse()


@pytest.mark.parametrize("line", commands())
def test_a_command_line_in_the_documentation_parses(line):
    arguments = shlex.split(line, comments=True)
    build_parser().parse_args(arguments[: arguments.index(">")] if ">" in arguments else arguments)


@pytest.mark.parametrize("block", list(blocks("jsonl")), ids=str)
def test_rows_in_the_documentation_load(block, tmp_path):
    (tmp_path / "rows.jsonl").write_text(block.text)
    reward = RewardType.CODE if "test_cases" in block.text else RewardType.BOXED
    rows = load_rows(
        str(tmp_path / "rows.jsonl"), DatasetSpec(), row_needs(RewardSpec(type=reward))
    )
    assert len(rows) == block.text.count("\n")


def python_of(page: str) -> Block:
    (block,) = (block for block in blocks("python") if block.page.name == page)
    return block


def test_the_environment_in_the_documentation_scores():
    names: dict[str, Any] = {}
    exec(python_of("environments.md").text, names)
    episode = names["Echo"]()
    (message,) = episode.reset({"question": "Is it?"}, seed=0).messages
    assert message == {"role": "user", "content": "Is it?"}
    scored = episode.step("yes")
    assert (scored.done, scored.reward) == (True, 1.0)


def test_the_reward_in_the_documentation_scores(tmp_path):
    block = python_of("rewards.md")
    (tmp_path / "rewards.py").write_text(block.text)
    custom = CustomRewardSpec(module=str(tmp_path / "rewards.py"))
    score = make_reward(RewardSpec(type=RewardType.CUSTOM, custom=custom))
    result = score("\\boxed{43}", Row("rows.jsonl line 1", (), answer="42"))
    assert (result.reward, result.accuracy) == (0.5, 0.0)


def test_the_readme_and_every_page_are_looked_at():
    names = {page.name for page in PAGES}
    assert {"README.md", "running.md", "manifest.md", "algorithm.md", "migration.md"} <= names
