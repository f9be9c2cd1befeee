"""The operator as a program.

Aspects: what it loads; how it logs; how it ends on bad settings, without a cluster it could ask,
and when the API server is not there.
"""

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_operator.clients.connection import ConfigurationError, api_client
from grpo_operator.controller.workers import current_job
from grpo_operator.logs import JsonFormatter, PlainFormatter


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def test_it_loads_nothing_of_the_trainer_but_the_spec_and_no_numerics():
    code = (
        "import sys, grpo_operator.controller.app;"
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
        "GRPO_LISTEN_PORT: Invalid value: 'http': must be an integer, at least 0 and at most 65535"
    )


def kubeconfig(user: Any = None, **cluster: str) -> dict[str, Any]:
    """One whose context is complete."""
    return {
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
        "users": [{"name": "u", "user": user or {"token": "x"}}],
    }


def error_with(file: Path) -> tuple[int, str]:
    """Exit code, and the one line on stderr, when KUBECONFIG names the file."""
    answer = run("-m", "grpo_operator", KUBECONFIG=str(file), GRPO_LOG_FORMAT="plain")
    (line,) = answer.stderr.splitlines()
    return answer.returncode, line


def test_without_any_cluster_it_says_what_it_looked_for(tmp_path: Path):
    code, line = error_with(tmp_path / "none")
    assert code == 2
    assert f"found neither a kubeconfig '{tmp_path}/none' nor a pod's service account" in line
    assert "set KUBECONFIG" in line


NOWHERE = "https://127.0.0.1:1"
CERTIFICATE = {"client-certificate-data": "eA==", "client-key-data": "eA=="}


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", "missing or malformed"),
        ("hello", "missing or malformed"),
        ("a: [b", "expected ',' or ']'"),
        ("{clusters: [], contexts: []}", "Expected key current-context"),
        ("{contexts: [], current-context: gone}", "Expected object with name gone"),
        (json.dumps(kubeconfig()), "has no server"),
        (json.dumps(kubeconfig({"client-certificate": "/none"}, server=NOWHERE)), "/none"),
        (json.dumps(kubeconfig(CERTIFICATE, server=NOWHERE)), "invalid certificates"),
    ],
    ids=[
        *("empty", "scalar", "no YAML", "no context", "unknown context", "no server"),
        *("missing certificate", "bad certificate"),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_is_named_with_its_fault(
    content: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "config"
    path.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(ConfigurationError) as refusal:
        async with api_client():
            raise AssertionError("a client was made")
    (line,) = str(refusal.value).splitlines()
    assert f"kubeconfig {path}: " in line
    assert fault in line


def test_an_api_server_that_is_not_there_at_the_start_is_named_in_a_line(tmp_path: Path):
    path = tmp_path / "config"
    path.write_text(json.dumps(kubeconfig(server="http://127.0.0.1:1")))
    code, line = error_with(path)
    assert code == 1
    assert "cannot reach the API server http://127.0.0.1:1" in line
    assert "check that it runs" in line


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
