"""Runs that cannot work, over real Ray: systematic failure is never success.

Aspects: engines and rewards that always fail, data without a signal, a hub that is down or refuses;
what is refused before an actor starts; what is inherited keeps no run from starting; a finished run
is not started again; signals at every moment.
"""

import http.server
import json
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from grpo_trainer.builtin import addition_rows, default_cache, resolve_model_path
from grpo_trainer.driver.run_health import MAX_SKIPPED_STEPS
from grpo_trainer.spec.reward import RewardType
from support.runs import GRPO, Run, manifest

Start = Callable[..., Run]
STARTED_ACTORS = "starting the consumers"
FAILING_MODEL = """
from transformers import Qwen2ForCausalLM


class FailingForCausalLM(Qwen2ForCausalLM):
    def forward(self, *arguments, **named):
        if not self.training:
            raise RuntimeError("device-side assert triggered")
        return super().forward(*arguments, **named)
"""

NAN_MODEL = """
import torch
from transformers import Qwen2ForCausalLM


class NanForCausalLM(Qwen2ForCausalLM):
    def forward(self, *arguments, **named):
        output = super().forward(*arguments, **named)
        if torch.is_grad_enabled():
            output.logits = output.logits + torch.sqrt(output.logits * 0)
        return output
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    runs: list[Run] = []

    def begin(*arguments: str, **environment: str) -> Run:
        runs.append(Run(tmp_path / "run", *arguments, environment=environment))
        return runs[-1]

    yield begin
    for run in runs:
        run.end()


@pytest.fixture
def few_rows(tmp_path: Path) -> str:
    path = tmp_path / "data.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in addition_rows("train")[:8]))
    return str(path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of the built-in model, to be damaged."""
    source = resolve_model_path("builtin://tiny", RewardType.BOXED, default_cache())
    return Path(shutil.copytree(source, tmp_path / "model"))


def reward(tmp_path: Path, body: str) -> dict[str, Any]:
    path = tmp_path / "rewards.py"
    path.write_text(f"def reward(completion, row):\n    {body}\n")
    return {"type": "custom", "custom": {"module": str(path), "function": "reward"}}


def set_code(model: Path, name: str, code: str) -> None:
    """Make a class of its own the code of a model."""
    (model / "modeling_own.py").write_text(code)
    config = json.loads((model / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": f"modeling_own.{name}"}
    (model / "config.json").write_text(json.dumps(config))


def assert_failed(run: Run, code: int, *texts: str) -> None:
    assert_ended(run, code, *texts)
    assert run.summary["outcome"] == "failed"
    for text in texts:
        assert text in run.summary["message"]


def assert_refused(run: Run, *texts: str) -> None:
    """It never started, so that it leaves no summary."""
    assert_ended(run, 64, *texts)
    assert not (run.directory / "summary.json").exists()
    assert STARTED_ACTORS not in run.output


def assert_ended(run: Run, code: int, *texts: str) -> None:
    assert run.wait() == code, run.output[-3000:]
    for text in texts:
        assert text in run.output
    assert "Traceback" not in run.output
    assert run.leftovers() == []


def test_an_engine_that_always_fails_is_a_retryable_failure_with_its_error(
    start: Start, tmp_path: Path, model: Path, few_rows: str
) -> None:
    set_code(model, "FailingForCausalLM", FAILING_MODEL)
    file = manifest(
        tmp_path / "job.yaml",
        model={"path": str(model), "trustRemoteCode": True},
        dataset={"path": few_rows},
    )
    assert_failed(start(str(file)), 1, "device-side assert triggered")


def test_gradients_that_are_never_finite_end_the_run_and_reach_no_checkpoint(
    start: Start, tmp_path: Path, model: Path
) -> None:
    set_code(model, "NanForCausalLM", NAN_MODEL)
    file = manifest(
        tmp_path / "job.yaml",
        model={"path": str(model), "trustRemoteCode": True},
        checkpoint={"interval": 1, "keepLast": 2},
        maxSteps=20,
    )
    run = start(str(file))
    assert_failed(run, 1, "are not finite")
    assert run.metrics[-1]["grpo_nonfinite_steps_total"] == run.steps == MAX_SKIPPED_STEPS
    with np.load(run.directory / "logs" / "nonfinite-step.npz") as saved:
        assert saved["step"] == MAX_SKIPPED_STEPS
        assert saved["rank-0/micro-batch-0/mask"].any()
    newest = Path(run.summary["newest_checkpoint"])
    before, after = (load_file(path / "model.safetensors") for path in (model, newest))
    assert all(torch.equal(before[name], tensor) for name, tensor in after.items())


def test_a_reward_that_always_fails_is_invalid_with_its_error(start: Start, tmp_path: Path) -> None:
    broken = reward(tmp_path, "return row['no such column']")
    assert_refused(start(str(manifest(tmp_path / "job.yaml", reward=broken))), "no such column")


def test_data_that_are_filtered_whole_are_invalid(
    start: Start, tmp_path: Path, few_rows: str
) -> None:
    file = manifest(
        tmp_path / "job.yaml",
        dataset={"path": few_rows},
        algorithm={"name": "DAPO"},
        reward=reward(tmp_path, "return 0.0"),
    )
    assert_failed(start(str(file)), 64, "filtered 8 of 8 prompts")


def test_a_run_whose_weights_never_change_is_no_success(
    start: Start, tmp_path: Path, few_rows: str
) -> None:
    file = manifest(
        tmp_path / "job.yaml", dataset={"path": few_rows}, reward=reward(tmp_path, "return 1.0")
    )
    assert_failed(start(str(file)), 64, "none of 1 steps had anything to train on")


@contextmanager
def hub(status: int) -> Iterator[str]:
    """A model hub that answers everything with one status."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            if status == 404:
                self.send_header("X-Error-Code", "RepoNotFound")
            self.end_headers()

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *arguments: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize(("status", "code"), [(503, 1), (404, 64), (401, 64)])
def test_a_hub_that_is_down_is_retryable_and_one_that_refuses_is_final(
    start: Start, tmp_path: Path, status: int, code: int
) -> None:
    file = manifest(tmp_path / "job.yaml", model={"path": "acme/no-such-model"})
    with hub(status) as url:
        run = start(str(file), HF_ENDPOINT=url, HF_HOME=str(tmp_path / "hub"))
        if code == 64:
            assert_refused(run, "acme/no-such-model")
        else:
            assert_failed(run, code, "acme/no-such-model")


def test_half_a_weight_file_is_refused_before_an_actor_starts(
    start: Start, tmp_path: Path, model: Path
) -> None:
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    run = start(str(manifest(tmp_path / "job.yaml", model={"path": str(model)})))
    assert_refused(run, str(weights))


def test_a_model_that_the_layout_does_not_support_is_refused_before_an_actor_starts(
    start: Start, tmp_path: Path, model: Path
) -> None:
    config = json.loads((model / "config.json").read_text())
    config |= {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
    (model / "config.json").write_text(json.dumps(config))
    file = manifest(tmp_path / "job.yaml", model={"path": str(model), "dtype": "bfloat16"})
    run = start(str(file))
    assert_refused(run, "for 'qwen3' set consumers.zeroStage: 1")


def test_a_pad_token_that_the_model_lacks_is_replaced(
    start: Start, tmp_path: Path, model: Path
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.save_pretrained(model)
    size = json.loads((model / "config.json").read_text())["vocab_size"]
    while tokenizer.pad_token_id < size:
        tokenizer.add_special_tokens({"pad_token": f"[PAD{len(tokenizer)}]"})
        tokenizer.save_pretrained(model)
    file = manifest(
        tmp_path / "job.yaml",
        model={"path": str(model)},
        algorithm={"klCoefficient": 0.01},
        maxSteps=2,
    )
    run = start(str(file))
    assert run.wait() == 0, run.output[-3000:]


def test_a_run_starts_whatever_the_environment_says_and_then_is_finished(
    start: Start, tmp_path: Path
) -> None:
    long = tmp_path / ("t" * 120)
    long.mkdir()
    file = manifest(tmp_path / "job.yaml", maxSteps=2)
    foreign = {
        **{"TMPDIR": str(long), "RAY_TMPDIR": str(long), "RAY_ADDRESS": "10.255.255.1:6379"},
        **{"RAY_NAMESPACE": "other", "RAY_RUNTIME_ENV_HOOK": "no.such.hook"},
        **{"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"},
        **{"MASTER_ADDR": "10.255.255.1", "MASTER_PORT": "1", "RANK": "7", "WORLD_SIZE": "8"},
    }
    run = start(str(file), **foreign)
    assert run.wait() == 0, run.output[-3000:]
    assert run.leftovers() == []
    log = (run.directory / "driver.log").read_text()
    assert "step 2/2" in log and "outcome: succeeded" in log

    again = subprocess.run(
        [*GRPO, "run", "--run-dir", str(run.directory)], capture_output=True, text=True, timeout=60
    )
    assert again.returncode == 0
    assert "already finished (2 of 2 steps); raise maxSteps" in again.stdout
    assert "starting Ray" not in again.stdout
    assert run.steps == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["starting Ray", STARTED_ACTORS])
def test_a_signal_before_the_first_step_stops_without_waiting_for_one(
    start: Start, tmp_path: Path, number: signal.Signals, moment: str
) -> None:
    run = start(str(manifest(tmp_path / "job.yaml", maxSteps=5000, numEpisodes=100)))
    run.until(lambda: moment in run.output)
    run.process.send_signal(number)
    assert run.wait(60) == 75, run.output[-3000:]
    assert run.summary["outcome"] == "stopped"
    assert "Ctrl-C again stops at once; to resume: " in run.output
    assert run.leftovers() == []


def test_a_second_signal_leaves_no_address_and_no_token(start: Start, tmp_path: Path) -> None:
    run = start(str(manifest(tmp_path / "job.yaml", maxSteps=5000, numEpisodes=100)))
    run.until(lambda: "starting Ray" in run.output)
    run.process.send_signal(signal.SIGINT)
    run.until(lambda: "Ctrl-C again stops at once" in run.output)
    run.process.send_signal(signal.SIGINT)
    assert run.wait(20) in (75, 130)
    assert not (run.directory / "endpoint").exists()
    assert not (run.directory / "drain.token").exists()
    assert run.leftovers() == []
