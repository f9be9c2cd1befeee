"""The commands of `your-model.md`, in their order, on a machine without GPU and network: the Hub's
cache has a model's configuration, a tokenizer of words and a table like GSM8K."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from unit.docs.pages import ROOT
from unit.report.builders import write_run

PAGE = (ROOT / "docs" / "your-model.md").read_text()
COMMANDS = re.findall(r"^grpo .*$", PAGE, re.MULTILINE)
TEMPLATE = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}"
QWEN_05B = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 896,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
}


def snapshot(cache: Path, name: str) -> Path:
    """A folder in the Hub's cache that is the main branch of a repository."""
    repository, commit = cache / "hub" / name.replace("/", "--"), "0" * 40
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    folder = repository / "snapshots" / commit
    folder.mkdir(parents=True)
    return folder


def write_model(folder: Path) -> None:
    words = {"<unk>": 0, "<eos>": 1, "<": 2, ">": 3, "{": 4, "}": 5, "\\boxed{": 6}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(QWEN_05B))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "chat_template": TEMPLATE,
                "eos_token": "<eos>",
                "unk_token": "<unk>",
            }
        )
    )


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Path:
    """A checkout's examples and a run, beside a cache of the Hub."""
    place = tmp_path_factory.mktemp("newcomer")
    (place / "examples").symlink_to(ROOT / "examples")
    write_run(place / "runs" / "gsm8k")
    write_model(snapshot(place, "models--Qwen/Qwen2.5-0.5B-Instruct"))
    rows = [
        {"question": f"How much are {a} and {b}?", "answer": f"<<{a}+{b}>> so\n#### {a + b:,}"}
        for a in range(990, 1020)
        for b in range(20)
    ]
    table = snapshot(place, "datasets--openai/gsm8k") / "main" / "train-00000-of-00001.parquet"
    table.parent.mkdir()
    pq.write_table(pa.Table.from_pylist(rows), table)
    return place


@pytest.fixture(scope="module")
def printed(here) -> dict[str, str]:
    """What each command prints; those that train only print their plan."""
    variables = {"HF_HOME": str(here), "HF_HUB_OFFLINE": "1", "COLUMNS": "80"}
    found = {}
    for command in COMMANDS:
        arguments = shlex.split(command)[1:]
        if arguments[0] == "run" and "--dry-run" not in arguments:
            arguments.append("--dry-run")
        done = subprocess.run(
            [sys.executable, "-m", "grpo_trainer.cli", *arguments],
            cwd=here,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        found[command] = done.stdout
    return found


def of(printed: dict[str, str], start: str) -> str:
    return next(text for command, text in printed.items() if command.startswith(start))


def test_every_command_succeeds(printed):
    assert [command.split()[1] for command in printed] == [
        *("data", "check", "plan", "run", "run", "run", "show", "report"),
    ]


def test_the_data_are_those_of_the_example(printed, here):
    lines = of(printed, "grpo data").splitlines()
    assert "wrote      data/gsm8k/train.jsonl: 400 rows" in lines
    assert "wrote      data/gsm8k/held-out.jsonl: 200 rows" in lines
    assert "answer     {answer}, the text behind ####" in lines
    assert "data       ok: data/gsm8k/train.jsonl 400 rows, held-out 200 rows; reward boxed" in (
        of(printed, "grpo check")
    )


def test_the_memory_is_what_the_page_says(printed):
    plan = of(printed, "grpo plan")
    assert re.search(r"consumer process +12\.27 GiB", plan)
    assert re.search(r"logits +1\.63 GiB", plan)
    assert re.search(r"producer process +5\.55 GiB", plan)
    assert re.search(r"one checkpoint +6\.44 GiB", plan)
    for figure in ("12.3 GiB", "5.6 GiB", "6.4 GiB"):
        assert figure in PAGE


def test_the_steps_are_what_the_page_says():
    prompts, step = 7473 - 200, 64
    assert f"{prompts * 2 // step} steps" in PAGE
