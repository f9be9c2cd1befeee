"""The operator as a program: what it loads, how it logs, how it ends on bad settings."""

import json
import logging
import subprocess
import sys

from grpo_operator.logs import JsonFormatter, PlainFormatter
from grpo_operator.workers import current_job


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def test_it_loads_nothing_of_the_trainer_but_the_spec_and_no_numerics():
    code = (
        "import sys, grpo_operator.app;"
        "print(*sorted({m.split('.')[0] for m in sys.modules} & "
        "{'torch', 'ray', 'numpy', 'transformers', 'colossalai'}));"
        "print(*sorted(m for m in sys.modules if m.startswith('grpo_trainer.')))"
    )
    answer = run("-c", code)
    heavy, trainer = answer.stdout.split("\n")[:2]
    assert heavy == ""
    assert all(module.startswith("grpo_trainer.spec") for module in trainer.split())


def test_bad_settings_are_named_before_anything_else():
    answer = run("-m", "grpo_operator", GRPO_LISTEN_PORT="http")
    assert answer.returncode == 2
    assert answer.stderr.strip() == (
        "GRPO_LISTEN_PORT: 'http' is not legal: a whole number, at least 0"
    )


def test_an_api_server_that_is_not_there_at_the_start_is_named_in_a_line(tmp_path):
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    config = {"clusters": [cluster], "contexts": [context], "current-context": "c"}
    config["users"] = [{"name": "u", "user": {"token": "x"}}]
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    answer = run("-m", "grpo_operator", KUBECONFIG=str(path), GRPO_LOG_FORMAT="plain")
    assert answer.returncode == 1
    assert "127.0.0.1:1" in answer.stderr
    assert "Traceback" not in answer.stderr


def record(message: str) -> logging.LogRecord:
    return logging.LogRecord("grpo_operator.x", logging.INFO, "f", 1, message, (), None)


def test_a_line_of_the_log_is_an_object_with_the_job_it_is_about():
    token = current_job.set("lab/math")
    try:
        entry = json.loads(JsonFormatter().format(record('say "hi"')))
    finally:
        current_job.reset(token)
    assert entry["job"] == "lab/math"
    assert entry["message"] == 'say "hi"'
    assert entry["level"] == "INFO"


def test_a_plain_line_names_the_job_too():
    formatter = PlainFormatter("%(levelname)s [%(job)s] %(message)s")
    assert formatter.format(record("hello")) == "INFO [-] hello"
