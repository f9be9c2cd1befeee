"""The original script's flags: names, defaults and where each value goes, against a literal table;
what odd values mean; that flags and the equal manifest give the same job."""

from pathlib import Path

import pytest

from grpo_trainer.cli.flags import FLAGS, Flag
from grpo_trainer.cli.jobs import given_flags, job_of, options_of
from grpo_trainer.cli.main import build_parser
from grpo_trainer.errors import InvalidInputError
from grpo_trainer.options import RunOptions
from grpo_trainer.spec import GRPOJob, GRPOJobSpec, parse_manifest, resolve_algorithm

# Names and defaults of rl_example_zero_bubble.py, then our field.
ORIGINAL = [
    ("-m", "--model", "Qwen/Qwen2.5-7B", "spec.model.path"),
    (None, "--tokenizer-path", None, "spec.model.tokenizerPath"),
    ("-d", "--dataset", "data.jsonl", "spec.dataset.path"),
    ("-ed", "--eval-dataset", None, "spec.evaluation.datasets"),
    ("-p", "--project", "GRPO", "spec.tracking.project"),
    ("-e", "--num-episodes", 1, "spec.numEpisodes"),
    ("-t", "--num-trainers", 2, "spec.consumers.processesPerReplica"),
    ("-i", "--num-inferencer", 2, "spec.producers.replicas"),
    ("-g", "--num-generations", 8, "spec.sampling.numGenerations"),
    ("-ibs", "--inference-batch-size", 64, "spec.batch.inferenceBatchSize"),
    ("-imbs", "--inference-microbatch-size", 8, "spec.batch.inferenceMicrobatchSize"),
    ("-tbs", "--train-batch-size", 32, "spec.batch.trainBatchSize"),
    ("-tMbs", "--train-minibatch-size", 8, "spec.batch.trainMinibatchSize"),
    ("-tmbs", "--train-microbatch-size", 2, "spec.batch.trainMicrobatchSize"),
    ("-tp", "--tensor-parallel-size", 1, "spec.consumers.tensorParallelSize"),
    ("-pp", "--pipeline-parallel-size", 1, "spec.consumers.pipelineParallelSize"),
    ("-zero", "--zero-stage", 0, "spec.consumers.zeroStage"),
    (None, "--ray_dir", None, "options.ray_temp_dir"),
    (None, "--master_address", None, "options.ray_address"),
    (None, "--master_port", 29506, "options.master_port"),
    ("-b", "--backend", "transformers", "spec.producers.backend"),
    ("-temp", "--temperature", 1.0, "spec.sampling.temperature"),
    ("-topk", "--top-k", None, "spec.sampling.topK"),
    ("-topp", "--top-p", 1.0, "spec.sampling.topP"),
    ("-s", "--system-prompt", None, "spec.reward.systemPrompt"),
    ("-mnt", "--max-new-tokens", 3584, "spec.sampling.maxNewTokens"),
    ("-mpt", "--max-prompt-tokens", 512, "spec.sampling.maxPromptTokens"),
    ("-ptp", "--producer-tensor-parallel-size", 1, "spec.producers.tensorParallelSize"),
    ("-a", "--algo", "GRPO", "spec.algorithm.name"),
    ("-lr", "--learning-rate", 1e-6, "spec.algorithm.learningRate"),
    ("-kl", "--kl-coeff", 0.01, "spec.algorithm.klCoefficient"),
    ("-rt", "--reward-type", "think_answer_tags", "spec.reward.type"),
    ("-ei", "--eval-interval", 100, "spec.evaluation.interval"),
    ("-cbsl", "--data_actor_buffer_size_limit", -1, "spec.buffer.maxPrompts"),
    ("-si", "--save-interval", 100, "spec.checkpoint.interval"),
    ("-sd", "--save-dir", "./model", "options.checkpoint_dir"),
    ("-esd", "--eval-save-dir", "./eval", "options.evaluation_dir"),
    ("-rsd", "--rollout-save-dir", "./rollouts", "options.rollout_dir"),
    (None, "--enable_profiling", False, "spec.tracking.profiling"),
]
# Where ours depends on another field, or where a free port or the run directory serves better.
OTHER_DEFAULTS = {
    "--eval-dataset": {},
    "--kl-coeff": None,
    "--master_port": None,
    "--save-dir": None,
    "--eval-save-dir": None,
    "--rollout-save-dir": None,
}


def job_from(*arguments: str) -> GRPOJob:
    return job_of(None, given_flags(build_parser().parse_args(["run", *arguments])))


def options_from(*arguments: str) -> dict:
    given = given_flags(build_parser().parse_args(["run", *arguments]))
    return options_of(given, "my project")


def spec_of(**sections) -> GRPOJobSpec:
    return parse_manifest({**GRPOJob().to_manifest(), "spec": sections}).spec


def test_names_and_fields_are_those_of_the_original_script():
    assert [(f.short, f.long, f.path) for f in FLAGS] == [(s, n, p) for s, n, _, p in ORIGINAL]


@pytest.mark.parametrize(("flag", "original"), list(zip(FLAGS, ORIGINAL, strict=True)))
def test_defaults_are_those_of_the_original_script(flag: Flag, original):
    assert flag.default == OTHER_DEFAULTS.get(flag.long, original[2])


def test_the_default_kl_coefficient_is_the_originals_for_each_algorithm():
    assert resolve_algorithm(job_from().spec).kl_coefficient == 0.01
    assert resolve_algorithm(job_from("-a", "DAPO").spec).kl_coefficient == 0


def test_every_option_of_the_table_is_one_of_the_run_options():
    options = {f.path.removeprefix("options.") for f in FLAGS if f.path.startswith("options.")}
    assert options <= set(RunOptions.__dataclass_fields__)


def test_no_flags_are_the_defaults_of_the_spec():
    assert job_from().spec == GRPOJobSpec()


@pytest.mark.parametrize("flag", [f for f in FLAGS if f.short is not None], ids=lambda f: f.long)
def test_short_and_long_name_mean_the_same(flag: Flag):
    values = {"-ed": '{"a": "b"}', "-b": "vllm", "-a": "DAPO", "-rt": "boxed"}
    value = values.get(flag.short, "1")
    assert job_or_fault(flag.short, value) == job_or_fault(flag.long, value)
    assert options_from(flag.short, value) == options_from(flag.long, value)


def job_or_fault(*arguments: str) -> GRPOJob | tuple[str, ...]:
    try:
        return job_from(*arguments)
    except InvalidInputError as error:
        return error.faults


def test_a_command_line_of_the_original_is_the_equal_manifest():
    command = (
        '-m models/q -d train.jsonl -ed {"gsm8k":"g.jsonl"} -p math -e 2 -t 4 -i 3 -g 4 -ibs 32 '
        "-imbs 16 -tbs 16 -tMbs 4 -tmbs 8 -tp 2 -zero 1 -b vllm -temp 0.9 -topk 20 -topp 0.95 "
        "-mnt 256 -mpt 128 -ptp 2 -a DAPO -lr 5e-7 -kl 0.001 -rt boxed -ei 10 -cbsl 24 -si 50 "
        "--tokenizer-path models/t --enable_profiling -s"
    )
    assert job_from(*command.split(), "Sum up.").spec == spec_of(
        model={"path": "models/q", "tokenizerPath": "models/t"},
        dataset={"path": "train.jsonl"},
        evaluation={"datasets": {"gsm8k": "g.jsonl"}, "interval": 10},
        algorithm={"name": "DAPO", "learningRate": 5e-7, "klCoefficient": 0.001},
        numEpisodes=2,
        reward={"type": "boxed", "systemPrompt": "Sum up."},
        sampling={
            "numGenerations": 4,
            "temperature": 0.9,
            "topK": 20,
            "topP": 0.95,
            "maxNewTokens": 256,
            "maxPromptTokens": 128,
        },
        batch={
            "inferenceBatchSize": 32,
            "inferenceMicrobatchSize": 16,
            "trainBatchSize": 16,
            "trainMinibatchSize": 4,
            "trainMicrobatchSize": 8,
        },
        buffer={"maxPrompts": 24},
        producers={"replicas": 3, "backend": "vllm", "tensorParallelSize": 2},
        consumers={
            "replicas": 1,
            "processesPerReplica": 4,
            "tensorParallelSize": 2,
            "zeroStage": 1,
        },
        checkpoint={"interval": 50},
        tracking={"project": "math", "profiling": True},
    )


@pytest.mark.parametrize("value", ["0", "-1"])
def test_an_evaluation_interval_below_one_is_off(value):
    assert job_from("-ei", value).spec.evaluation.interval == 0


@pytest.mark.parametrize("value", ["0", "-1"])
def test_a_top_k_below_one_is_off(value):
    assert job_from("-topk", value).spec.sampling.top_k is None


@pytest.mark.parametrize(
    ("text", "address"),
    [("10.0.0.3", "10.0.0.3:6379"), ("10.0.0.3:7000", "10.0.0.3:7000"), ("auto", "auto")],
)
def test_the_master_address_is_the_ray_cluster_to_join(text, address):
    assert options_from("--master_address", text) == {"ray_address": address}


def test_checkpoints_and_evaluations_of_projects_are_kept_apart():
    assert options_from("-sd", "model", "-esd", "eval", "-rsd", "rollouts") == {
        "checkpoint_dir": Path("model/my_project"),
        "evaluation_dir": Path("eval/my_project"),
        "rollout_dir": Path("rollouts"),
    }


def test_ports_and_directories_reach_the_run_options():
    assert options_from("--ray_dir", "/tmp/ray", "--master_port", "29506") == {
        "ray_temp_dir": Path("/tmp/ray"),
        "master_port": 29506,
    }


@pytest.mark.parametrize(
    ("project", "name"),
    [
        ("GRPO", "grpo"),
        ("My Math_Run.2", "my-math-run-2"),
        ("2nd run", "nd-run"),
        ("漢字", "grpo"),
        ("a" * 60, "a" * 44),
        ("a" * 43 + "-b", "a" * 43),
    ],
)
def test_a_job_from_flags_is_called_after_its_project(project, name):
    assert job_from("-p", project).metadata.name == name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-t", "two"), "-t/--num-trainers: invalid int value: 'two'"),
        (("-a", "PPO"), "-a/--algo: invalid choice: 'PPO' (choose from 'GRPO', 'DAPO'"),
        (("-ed", "{'a': 'b'}"), "-ed/--eval-dataset: Invalid value: \"{'a': 'b'}\": must be JSON"),
        (("-ed", '["a"]'), "-ed/--eval-dataset: Invalid value: '[\"a\"]': must be like"),
        (("-ed", '{"a": 1}'), "-ed/--eval-dataset"),
        (
            ("--master_port", "70000"),
            "--master_port: Invalid value: 70000: must be a port, 0 to 65535",
        ),
        (("--nonsense",), "unrecognized arguments: --nonsense"),
        (("-m",), "-m/--model: expected one argument"),
    ],
)
def test_a_wrong_value_names_its_flag(arguments, message):
    with pytest.raises(InvalidInputError) as caught:
        job_from(*arguments)
    assert len(caught.value.faults) == 1
    assert message in str(caught.value)


def test_all_faults_of_the_flags_are_reported_at_once_each_with_its_flag():
    with pytest.raises(InvalidInputError) as caught:
        job_from("-g", "1", "-lr", "nan", "-tbs", "30")
    assert [fault.split(": must")[0] for fault in caught.value.faults] == [
        "command line: spec.algorithm.learningRate: Invalid value: NaN",
        "command line: spec.sampling.numGenerations: Invalid value: 1",
        "command line: spec.batch.trainBatchSize: Invalid value: 30",
    ]
    assert caught.value.faults[1].endswith("(set by -g/--num-generations)")


def test_the_help_shows_every_flag_and_default():
    run = next(a for a in build_parser()._actions if a.dest == "==SUPPRESS==").choices["run"]
    text = " ".join(run.format_help().split())
    for flag in FLAGS:
        assert f" {flag.long} " in text
    assert "(default: Qwen/Qwen2.5-7B)" in text
    assert "a flag that is given wins over the file's field" in text
