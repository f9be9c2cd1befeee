"""`grpo check`: every stage, all faults at once, nothing started and nothing created.

The model is a directory with a configuration, a tokenizer of words, and one small tensor.
"""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from grpo_trainer.cli import main
from grpo_trainer.spec import API_VERSION

TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model")
    words = {word: i for i, word in enumerate(["<unk>", "<eos>", *"0123456789", "+", "="])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path / "tokenizer.json"))
    save_file({"weight": np.zeros(2, np.float32)}, path / "model.safetensors")
    config = {"model_type": "qwen2", "max_position_embeddings": 64, "vocab_size": 14}
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "chat_template": TEMPLATE,
                "eos_token": "<eos>",
                "unk_token": "<unk>",
            }
        )
    )
    return path


@pytest.fixture
def here(tmp_path, monkeypatch, model) -> Path:
    """A working directory with a job, its data and its reward."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"messages": [{"role": "user", "content": f"{a} + 1 ="}], "gt_answer": str(a + 1)}
        for a in range(8)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "rewards.py").write_text("def reward(completion, row):\n    return 1.0\n")
    spec = {
        "model": {"path": str(model), "dtype": "float32"},
        "dataset": {"path": "rows.jsonl"},
        "reward": {"type": "custom", "systemPrompt": "", "custom": {"module": "rewards.py"}},
        "sampling": {"maxPromptTokens": 8, "maxNewTokens": 8},
        "batch": {"trainBatchSize": 4, "trainMinibatchSize": 4},
        "producers": {"replicas": 1, "accelerator": "cpu"},
        "consumers": {"processesPerReplica": 1, "accelerator": "cpu"},
    }
    data = {"apiVersion": API_VERSION, "kind": "GRPOJob", "metadata": {"name": "a"}, "spec": spec}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(data))
    return tmp_path


def outcomes(printed: str) -> dict[str, str]:
    """What each stage printed."""
    return dict(line.split(None, 1) for line in printed.splitlines())


def test_a_job_that_can_run_passes_every_stage(here, capsys):
    before = sorted(here.rglob("*"))
    assert main(["check", "job.yaml"]) == 0
    stages = outcomes(capsys.readouterr().out)
    assert list(stages) == [
        *("manifest", "directory", "machine", "trackers", "data", "model", "prompts", "disk"),
    ]
    assert all(text.startswith("ok: ") for text in stages.values())
    assert stages["data"] == "ok: rows.jsonl 8 rows; reward custom"
    assert "2 parameters, tokenizer of 14 tokens" in stages["model"]
    assert stages["prompts"] == "ok: 8, longest 4 tokens of 8; 2 steps planned"
    assert stages["disk"].endswith(" are free and 1 checkpoints of 24 B are needed")
    left = [path for path in here.rglob("*") if "__pycache__" not in path.parts]
    assert sorted(left) == before


def test_it_loads_neither_torch_nor_ray(here):
    code = (
        "import sys; from grpo_trainer.cli import main; main(['check', 'job.yaml']); "
        "print(*[name for name in ('torch', 'ray', 'colossalai') if name in sys.modules])"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], cwd=here, text=True)
    assert printed.splitlines()[-1] == ""


def test_the_faults_of_all_stages_are_reported_together(here, capsys):
    (here / "rows.jsonl").write_text('{"messages": []}\n')
    arguments = ["check", "job.yaml", "--set", "spec.sampling.maxNewTokens=100"]
    assert main([*arguments, "-m", str(here / "none")]) == 64
    printed = capsys.readouterr()
    stages = outcomes(printed.out)
    assert (stages["data"], stages["model"]) == ("failed", "failed")
    assert "prompts" not in stages
    assert any(line.startswith("rows.jsonl line 1") for line in printed.err.splitlines())
    assert "spec.model.path: Invalid value: " in printed.err


def test_a_context_that_is_too_short_is_refused(here, capsys):
    assert main(["check", "job.yaml", "--set", "spec.sampling.maxNewTokens=100"]) == 64
    assert "spec.sampling.maxNewTokens: Invalid value: 100" in capsys.readouterr().err


def test_a_reward_that_raises_is_reported_with_its_line(here, capsys):
    (here / "rewards.py").write_text("def reward(completion, row):\n    return row['points']\n")
    assert main(["check", "job.yaml"]) == 64
    fault = capsys.readouterr().err
    assert "spec.reward.custom.function: Invalid value: 'reward'" in fault
    assert 'rewards.py", line 2' in fault
    assert "KeyError: 'points'" in fault


def test_prompts_that_do_not_fit_are_counted(here, capsys):
    row = {"messages": [{"role": "user", "content": "1 " * 20}], "gt_answer": "1"}
    with (here / "rows.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    assert main(["check", "job.yaml"]) == 0
    assert "8, 1 too long and dropped, longest 4 tokens" in capsys.readouterr().out


def test_a_fault_of_the_manifest_is_the_only_one(here, capsys):
    assert main(["check", "job.yaml", "-g", "1"]) == 64
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("job.yaml: spec.sampling.numGenerations: Invalid value: 1")


def test_a_disk_that_is_too_small_is_reported(here, monkeypatch, capsys):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(total=100, free=10))
    assert main(["check", "job.yaml"]) == 64
    assert "10 B are free and 1 checkpoints of 24 B are needed" in capsys.readouterr().err


def faults(capsys, *options: str) -> list[str]:
    """What `grpo check` writes to standard error."""
    assert main(["check", "job.yaml", *options]) == 64
    return capsys.readouterr().err.splitlines()


def test_an_unknown_built_in_model_is_refused(here, capsys):
    (fault,) = faults(capsys, "--set", "spec.model.path=builtin://tny")
    assert fault == 'spec.model.path: Invalid value: "builtin://tny": must be builtin://tiny'


def test_a_prompt_limit_beyond_the_context_is_named_itself(here, capsys, model):
    (fault,) = faults(capsys, "-mpt", "100")
    assert fault == (
        f"spec.sampling.maxPromptTokens: Invalid value: 100: must be less than 64, the context of "
        f"{model} in tokens"
    )


def test_a_table_that_is_no_data_set_comes_with_the_command_that_converts_it(here, capsys):
    (here / "rows.csv").write_text("question,answer\n1,2\n")
    (fault,) = faults(capsys, "-d", "rows.csv")
    assert fault == (
        "rows.csv: Invalid value: file extension '.csv': must be .jsonl or .parquet; `grpo data` "
        "converts other tables"
    )


def test_a_tracker_that_cannot_be_reached_is_named(here, capsys, unused_tcp_port):
    uri = f"http://127.0.0.1:{unused_tcp_port}"
    (fault,) = faults(capsys, "--set", f"spec.tracking.mlflow.trackingUri={uri}")
    assert fault == f"spec.tracking.mlflow: no answer from {uri}: [Errno 111] Connection refused"
