"""`--set` and `--dry-run`: types, precedence, faults by field, and the plan."""

import socket

import pytest
import yaml

from grpo_trainer.cli import main
from grpo_trainer.cli.jobs import given_flags, job_of
from grpo_trainer.cli.main import build_parser
from grpo_trainer.cli.manifests import Document
from grpo_trainer.errors import InvalidInputError
from grpo_trainer.spec import API_VERSION, GRPOJob, parse_manifest


def document(**spec) -> Document:
    data = {"apiVersion": API_VERSION, "kind": "GRPOJob", "metadata": {"name": "a"}, "spec": spec}
    return Document("job.yaml", data)


def merged(base: Document | None, *arguments: str) -> GRPOJob:
    parsed = build_parser().parse_args(["run", *arguments])
    return job_of(base, given_flags(parsed), parsed.settings)


def faults(*arguments: str, base: Document | None = None) -> tuple[str, ...]:
    with pytest.raises(InvalidInputError) as caught:
        merged(base or document(), *arguments)
    return caught.value.faults


def test_a_setting_wins_over_file_and_flag():
    job = merged(document(maxSteps=3), "--set", "spec.maxSteps=10", "-e", "2")
    assert (job.spec.max_steps, job.spec.num_episodes) == (10, 2)
    job = merged(document(), "-g", "4", "--set", "spec.sampling.numGenerations=6")
    assert job.spec.sampling.num_generations == 6


def test_a_value_is_yaml():
    job = merged(
        document(),
        *("--set", "spec.algorithm.learningRate=1e-5"),
        *("--set", "spec.suspend=true"),
        *("--set", 'spec.reward.systemPrompt="7"'),
        *("--set", "spec.env=[{name: A, value: b}]"),
        *("--set", "metadata.name=other"),
    )
    assert (job.spec.algorithm.learning_rate, job.spec.suspend) == (1e-5, True)
    assert job.spec.reward.system_prompt == "7"
    assert (job.spec.env[0].name, job.metadata.name) == ("A", "other")


def test_the_last_of_two_settings_wins():
    assert merged(document(), "--set", "spec.seed=1", "--set", "spec.seed=2").spec.seed == 2


def test_an_empty_value_removes_the_field():
    assert merged(document(maxSteps=3), "--set", "spec.maxSteps=").spec.max_steps is None


def test_a_dot_inside_a_key_is_escaped():
    job = merged(document(), "--set", r"spec.head.nodeSelector.example\.com/pool=a")
    assert job.spec.head.node_selector == {"example.com/pool": "a"}


def test_without_a_file_settings_make_the_job():
    assert merged(None, "--set", "spec.model.path=q").spec.model.path == "q"


def test_an_unknown_field_is_reported_with_what_may_have_been_meant():
    (fault,) = faults("--set", "spec.maxStep=10")
    assert fault.startswith(
        "job.yaml: spec.maxStep: Forbidden: unknown field; did you mean maxSteps?"
    )
    assert fault.endswith("(set by --set spec.maxStep)")


def test_a_value_of_another_type_names_the_setting():
    (fault,) = faults("--set", "spec.maxSteps=ten")
    assert fault.startswith('job.yaml: spec.maxSteps: Invalid value: "ten": must be')
    assert fault.endswith("(set by --set spec.maxSteps)")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("spec.maxSteps", "Invalid value: 'spec.maxSteps': must be PATH=VALUE"),
        ("maxSteps=1", "must begin with spec. or metadata.; did you mean spec.maxSteps?"),
        ("spec=1", "must begin with spec. or metadata."),
        ("spec..seed=1", "must not have an empty key"),
        ("spec.seed=[", "must be YAML"),
        ("spec.seed=!!python/none x", "must be YAML"),
    ],
)
def test_a_malformed_setting_is_one_fault(text, message):
    (fault,) = faults("--set", text)
    assert fault.startswith("grpo run: argument --set: ")
    assert message in fault


@pytest.mark.parametrize(
    ("path", "section"),
    [
        ("spec.seed.x", "spec.seed is not a mapping"),
        ("spec.env.0.name", "spec.env is a list; set it as a whole"),
    ],
)
def test_a_path_through_a_value_is_refused(path, section):
    base = document(seed=7, env=[{"name": "A"}])
    assert faults("--set", f"{path}=1", base=base) == (f"--set {path}: Invalid value: {section}",)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(document(seed=7).data))
    return tmp_path


def test_a_dry_run_prints_the_plan_and_a_complete_manifest_and_creates_nothing(here, capsys):
    assert main(["run", "job.yaml", "--dry-run", "--set", "spec.maxSteps=10", "-g", "4"]) == 0
    printed = capsys.readouterr().out
    job = parse_manifest(yaml.safe_load(printed))
    assert (job.spec.seed, job.spec.max_steps, job.spec.sampling.num_generations) == (7, 10, 4)
    assert yaml.safe_load(printed)["spec"]["sampling"]["temperature"] == 1.0
    plan = [line for line in printed.splitlines() if line.startswith("# ")]
    assert {"# steps: 10", "# step: 64 prompts, 256 completions"} <= set(plan)
    assert plan[0].startswith("# run directory: runs/a-2")
    assert [path.name for path in here.iterdir()] == ["job.yaml"]


def test_a_dry_run_of_an_invalid_job_reports_its_faults(here, capsys):
    assert main(["run", "job.yaml", "--dry-run", "-g", "1"]) == 64
    assert "spec.sampling.numGenerations: Invalid value: 1" in capsys.readouterr().err


def test_a_port_of_the_command_line_that_is_in_use_is_refused(here, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["run", "job.yaml", "--port", str(port)]) == 64
    assert capsys.readouterr().err == (
        f"--port: Invalid value: {port}: must be free on 127.0.0.1, is in use; choose another "
        "port, or 0 for a free one\n"
    )
    assert not (here / "runs").exists()


def test_vllm_without_its_environment_is_refused_with_the_way_to_get_it(here, monkeypatch, capsys):
    monkeypatch.setenv("GRPO_VLLM_PYTHON", str(here / "none"))
    assert main(["run", "job.yaml", "-b", "vllm"]) == 64
    fault = capsys.readouterr().err
    assert 'spec.producers.backend: Invalid value: "vllm"' in fault
    assert "make run BACKEND=vllm" in fault
    assert not (here / "runs").exists()
