"""The commands as a user runs them: exit codes, what goes to which stream, no traceback for any
input, light commands that load no library of the trainer, and what a run hands to the driver."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from grpo_trainer.cli import main
from grpo_trainer.cli.start import create_run_dir, new_run_dir
from grpo_trainer.errors import InvalidInputError
from grpo_trainer.options import RunOptions
from grpo_trainer.reporting import RunPaths
from grpo_trainer.reporting.journal import Journal
from grpo_trainer.spec import API_VERSION, ExitCode, GRPOJob, parse_manifest

HEAVY = {"torch", "ray", "transformers", "colossalai", "aiohttp", "prometheus_client", "numpy"}
HEAD = f"apiVersion: {API_VERSION}\nkind: GRPOJob\nmetadata: {{name: tiny}}\n"
VALID = f"{HEAD}spec: {{seed: 7}}\n"
PROGRAM = Path(sys.executable).with_name("grpo")
EXAMPLES = Path(__file__).parents[3] / "examples"


def grpo(*arguments: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """The installed program."""
    command = [str(PROGRAM), *arguments]
    return subprocess.run(
        command, cwd=cwd, input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def driver(monkeypatch):
    """Records the calls of `grpo_trainer.driver.run`, which then ends as a stopped run does."""
    calls: list[tuple[GRPOJob, RunOptions]] = []
    module = ModuleType("grpo_trainer.driver")

    def run(job: GRPOJob, options: RunOptions) -> int:
        calls.append((job, options))
        return ExitCode.STOPPED

    module.run = run
    monkeypatch.setitem(sys.modules, "grpo_trainer.driver", module)
    return calls


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A working directory with a valid manifest and its data."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.jsonl").write_text("")
    (tmp_path / "job.yaml").write_text(VALID)
    return tmp_path


def start_run(run_dir: Path, **spec) -> GRPOJob:
    """Leave the directory of a run of this spec."""
    job = parse_manifest({**GRPOJob().to_manifest(), "metadata": {"name": "tiny"}, "spec": spec})
    Journal(RunPaths.of(RunOptions(run_dir)), job)
    return job


def test_a_valid_file_is_reported_as_valid(here):
    done = grpo("validate", "job.yaml", cwd=here)
    assert (done.returncode, done.stderr) == (0, "")
    first, _, plan = done.stdout.partition("\n")
    assert first == "job.yaml: valid"
    assert "    step: 64 prompts, 512 completions\n" in plan


def test_validation_reports_every_fault_of_every_file_one_per_line(here, capsys):
    spec = "{seed: -1, batch: {trainBatchSize: 30}}"
    (here / "bad.yaml").write_text(f"{HEAD}spec: {spec}\n---\nkind: Pod\n")
    assert main(["validate", "bad.yaml", "job.yaml", "none.yaml"]) == 64
    reported = capsys.readouterr()
    assert reported.out.startswith("job.yaml: valid\n")
    assert reported.out.count("valid") == 1
    assert [line.split(": must")[0] for line in reported.err.splitlines()] == [
        "bad.yaml, document 1: spec.seed: Invalid value: -1",
        "bad.yaml, document 1: spec.batch.trainBatchSize: Invalid value: 30",
        'bad.yaml, document 2: kind: Invalid value: "Pod"',
        "none.yaml: No such file or directory",
    ]


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_is_valid(example, capsys):
    assert main(["validate", str(example)]) == 0


def test_a_printed_manifest_is_valid_and_equals_its_flags(here):
    printed = grpo("manifest", "-m", "q", "-g", "4", "-s", "Zähl \x85 \U0001f600", cwd=here)
    assert printed.returncode == 0
    assert grpo("validate", "-", cwd=here, stdin=printed.stdout).returncode == 0
    assert yaml.safe_load(printed.stdout) == {
        "apiVersion": API_VERSION,
        "kind": "GRPOJob",
        "metadata": {"name": "grpo"},
        "spec": {
            "model": {"path": "q"},
            "reward": {"systemPrompt": "Zähl \x85 \U0001f600"},
            "sampling": {"numGenerations": 4},
        },
    }


def test_a_manifest_reports_what_it_leaves_out(capsys):
    assert main(["manifest", "-sd", "model", "--ray_dir", "ray"]) == 0
    notes = capsys.readouterr().err
    assert "--save-dir has no field in a manifest" in notes
    assert "--ray_dir has no field in a manifest" in notes
    assert "add spec.storage" in notes


def test_the_schema_describes_the_manifest_with_its_required_fields(here):
    schema = json.loads(grpo("schema", cwd=here).stdout)
    assert schema["required"] == ["apiVersion", "kind", "metadata"]
    assert schema["$defs"]["Metadata"]["required"] == ["name"]
    generations = schema["$defs"]["SamplingSpec"]["properties"]["numGenerations"]
    assert (generations["minimum"], generations["default"]) == (2, 8)
    assert generations["description"] == "Completions per prompt (the group)."


def test_a_run_of_bad_input_ends_with_code_64_and_one_line(here):
    done = grpo("run", "job.yaml", "-g", "1", cwd=here)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr == (
        "job.yaml: spec.sampling.numGenerations: Invalid value: 1: must be greater than or equal "
        "to 2 (set by -g/--num-generations)\n"
    )


def test_light_commands_load_nothing_of_the_trainer(here):
    code = (
        "import sys; from grpo_trainer.cli import main; main(['validate', 'job.yaml']); "
        "main(['manifest', '-g', '4']); main(['schema']); main(['run', '-t', 'two']); "
        "print(*sys.modules)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=60, check=True)
    assert HEAVY.isdisjoint(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["walk"],
        ["run", "-t", "two"],
        ["run", "none.yaml"],
        ["run", "job.yaml", "-g", "1"],
        ["run", "job.yaml", "--port", "70000"],
        ["manifest", "-ed", "{"],
        ["manifest", "-p", "\udcff"],
        ["validate"],
        ["validate", "."],
    ],
    ids=" ".join,
)
def test_bad_input_is_reported_in_one_line_without_a_traceback(here, driver, capsys, arguments):
    assert main(arguments) == 64
    reported = capsys.readouterr()
    assert len(reported.err.splitlines()) == 1
    assert (reported.out, driver) == ("", [])


def test_a_run_gets_the_job_its_directory_and_the_drivers_code_is_the_programs(here, driver):
    assert main(["run", "job.yaml", "--run-dir", "out", "--host", "::1", "--port", "0"]) == 75
    ((job, options),) = driver
    assert (job.metadata.name, job.spec.seed) == ("tiny", 7)
    assert options == RunOptions(Path("out"), host="::1", port=0)


def test_a_run_without_a_directory_gets_a_new_one_of_its_own(here, driver):
    main(["run", "job.yaml"])
    ((_, options),) = driver
    assert options.run_dir.parent == Path("runs")
    assert options.run_dir.name.startswith("tiny-2")
    assert options.run_dir.is_dir()
    assert (options.host, options.port) == (RunOptions(Path()).host, RunOptions(Path()).port)


def test_missing_data_are_found_before_anything_is_created(here, driver, capsys):
    sets = "spec.evaluation.datasets={a: a.jsonl, b: builtin://addition-held-out}"
    assert main(["run", "job.yaml", "-d", "no.jsonl", "--set", sets]) == 64
    assert capsys.readouterr().err.splitlines() == [
        f'spec.dataset.path: Invalid value: "no.jsonl": no such file (working directory: {here})',
        'spec.evaluation.datasets.a: Invalid value: "a.jsonl": no such file (working directory: '
        f"{here})",
    ]
    assert driver == []
    assert not (here / "runs").exists()


@pytest.mark.parametrize("arguments", [(), ("--run-dir", "mine")])
def test_a_run_that_never_started_leaves_no_directory(here, monkeypatch, arguments):
    def refuse(job: GRPOJob, options: RunOptions) -> int:
        (options.run_dir / "logs").mkdir(parents=True)
        raise InvalidInputError("spec.model.path: Invalid value")

    module = ModuleType("grpo_trainer.driver")
    module.run = refuse
    monkeypatch.setitem(sys.modules, "grpo_trainer.driver", module)
    assert main(["run", "job.yaml", *arguments]) == 64
    assert [p for p in (*here.glob("runs/*"), here / "mine") if p.exists()] == []


@pytest.mark.parametrize("kept", ["metrics.jsonl", "logs/consumer.out"])
def test_what_a_run_has_written_stays_after_its_failure(here, monkeypatch, kept):
    def fail(job: GRPOJob, options: RunOptions) -> int:
        (options.run_dir / "logs").mkdir(parents=True)
        (options.run_dir / kept).write_text("{}")
        raise InvalidInputError("spec.reward: Invalid value")

    module = ModuleType("grpo_trainer.driver")
    module.run = fail
    monkeypatch.setitem(sys.modules, "grpo_trainer.driver", module)
    assert main(["run", "job.yaml", "--run-dir", "mine"]) == 64
    assert (here / "mine" / kept).exists()


def test_two_runs_never_share_a_new_directory(here):
    from datetime import datetime

    now = datetime(2026, 1, 2, 3, 4, 5)
    assert new_run_dir("a", now) == Path("runs/a-20260102-030405")
    create_run_dir(new_run_dir("a", now))
    with pytest.raises(InvalidInputError, match="File exists; choose another --run-dir"):
        create_run_dir(new_run_dir("a", now))


def test_a_run_of_flags_alone_trains_their_job(here, driver):
    main(["run", "-m", "q", "-p", "my run", "-sd", "model", "--master_port", "1234"])
    ((job, options),) = driver
    assert (job.metadata.name, job.spec.model.path) == ("my-run", "q")
    assert (options.checkpoint_dir, options.master_port) == (Path("model/my_run"), 1234)


def test_a_directory_with_a_run_is_resumed_by_its_own_manifest(here, driver):
    job = start_run(here / "out", seed=9, maxSteps=10)
    main(["run", "--run-dir", "out"])
    assert driver[0][0] == job


def test_a_resumed_run_may_train_longer(here, driver):
    start_run(here / "out", seed=9, maxSteps=10)
    (here / "job.yaml").write_text(VALID.replace("seed: 7", "seed: 9, maxSteps: 20"))
    assert main(["run", "job.yaml", "--run-dir", "out"]) == 75
    assert driver[0][0].spec.max_steps == 20


def test_a_directory_of_another_run_is_refused_with_every_difference(here, driver, capsys):
    start_run(here / "out", seed=9)
    (here / "out/checkpoints/step-2").mkdir()
    assert main(["run", "job.yaml", "--run-dir", "out", "-g", "4"]) == 64
    first, *differences = capsys.readouterr().err.splitlines()
    assert first.startswith("--run-dir: Invalid value: 'out': must be the directory of this run")
    assert first.endswith("resume `grpo run --run-dir out`")
    assert differences == [
        "spec.seed: Invalid value: 7: must be 9, as in the run so far",
        "spec.sampling.numGenerations: Invalid value: 4: must be 8, as in the run so far",
    ]
    assert driver == []


def test_a_run_that_left_no_checkpoint_may_be_corrected(here, driver):
    start_run(here / "out", seed=9)
    assert main(["run", "job.yaml", "--run-dir", "out"]) == 75
    assert driver[0][0].spec.seed == 7


def test_a_stored_spec_that_is_damaged_is_bad_input(here, driver, capsys):
    (here / "out").mkdir()
    (here / "out/spec.json").write_text("{")
    assert main(["run", "job.yaml", "--run-dir", "out"]) == 64
    assert "out/spec.json: line 1, column 2" in capsys.readouterr().err


def test_an_empty_directory_starts_a_run(here, driver):
    (here / "out").mkdir()
    assert main(["run", "job.yaml", "--run-dir", "out"]) == 75


def test_a_new_run_does_not_resume_from_checkpoints_of_another(here, driver, capsys):
    (here / "model/GRPO/step-10").mkdir(parents=True)
    assert main(["run", "job.yaml", "--run-dir", "out", "-sd", "model"]) == 64
    reported = capsys.readouterr().err
    assert "'model/GRPO': must not contain checkpoints of another run" in reported


def test_its_own_checkpoints_elsewhere_do_not_stop_a_resumption(here, driver):
    start_run(here / "out", seed=7)
    (here / "model/GRPO/step-10").mkdir(parents=True)
    assert main(["run", "job.yaml", "--run-dir", "out", "-sd", "model"]) == 75


def test_bad_input_that_only_the_driver_can_find_ends_the_same_way(here, monkeypatch, capsys):
    module = ModuleType("grpo_trainer.driver")

    def run(job: GRPOJob, options: RunOptions) -> int:
        raise InvalidInputError(["data.jsonl row 1: no answer", "data.jsonl row 4: no answer"])

    module.run = run
    monkeypatch.setitem(sys.modules, "grpo_trainer.driver", module)
    assert main(["run", "job.yaml"]) == 64
    assert capsys.readouterr().err.splitlines() == [
        "data.jsonl row 1: no answer",
        "data.jsonl row 4: no answer",
    ]
    assert list((here / "runs").iterdir()) == []


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]])
def test_help_and_version_end_well(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    assert capsys.readouterr().out
