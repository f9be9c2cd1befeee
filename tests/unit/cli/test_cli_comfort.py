"""What a terminal's user meets: suggestions, help, completion, pipes and interrupts."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_trainer.cli import commands, main
from grpo_trainer.cli.flags import FLAGS, GROUPS, flags_of
from grpo_trainer.cli.main import build_parser

PROGRAM = Path(sys.executable).with_name("grpo")


def error(capsys, *arguments: str) -> str:
    """The one line of a command line that is refused."""
    assert main(arguments) == 64
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("--max-steps", "use --set spec.maxSteps=VALUE"),
        ("--maxSteps", "use --set spec.maxSteps=VALUE"),
        ("--checkpoint-keep-last", "use --set spec.checkpoint.keepLast=VALUE"),
        ("--num-generatons", "did you mean --num-generations?"),
        ("--run-directory", "did you mean --run-dir?"),
    ],
)
def test_an_unknown_flag_is_refused_with_what_may_have_been_meant(capsys, flag, hint):
    line = error(capsys, "run", "job.yaml", flag, "10")
    assert line == (f"grpo run: unrecognized arguments: {flag} 10; {hint}; see `grpo run --help`")


def test_an_unknown_flag_like_no_other_has_no_suggestion(capsys):
    line = error(capsys, "run", "--qqq")
    assert line == "grpo run: unrecognized arguments: --qqq; see `grpo run --help`"


def test_a_misspelt_command_is_refused_with_the_right_one(capsys):
    assert "did you mean validate?" in error(capsys, "validat", "job.yaml")


def test_a_misspelt_value_is_refused_with_the_right_one(capsys):
    assert "did you mean transformers?" in error(capsys, "run", "-b", "transformer")


def test_every_flag_is_in_one_group_of_the_help():
    grouped = [flag for title in GROUPS for flag in flags_of(title)]
    assert sorted(flag.long for flag in grouped) == sorted(flag.long for flag in FLAGS)


def test_the_help_lists_groups_and_exit_codes(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    text = capsys.readouterr().out
    assert all(f"\n{title}:\n" in text for title in GROUPS)
    assert "exit codes: 0 success;" in text


@pytest.mark.parametrize("shell", commands.SHELLS)
def test_every_shell_gets_a_completion_script(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "grpo" in script and "num-generations" in script


def test_bash_completes_commands_and_flags(tmp_path):
    script = tmp_path / "grpo.bash"
    script.write_text(subprocess.check_output([PROGRAM, "completion", "bash"], text=True))

    def completed(*words: str) -> list[str]:
        line = " ".join(f"'{word}'" for word in words)
        code = (
            f". {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
            '_shtab_grpo; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        return subprocess.check_output([shutil.which("bash"), "-c", code], text=True).split()

    assert completed("grpo", "val") == ["validate"]
    assert completed("grpo", "run", "--num-gen") == ["--num-generations"]
    assert completed("grpo", "run", "-b", "v") == ["vllm"]


def test_a_closed_pipe_ends_the_program_quietly():
    program = subprocess.Popen(
        [PROGRAM, "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert program.stdout is not None and program.stderr is not None
    program.stdout.close()
    assert program.stderr.read() == ""
    assert program.wait(30) == 0
    program.stderr.close()


def test_an_interrupt_ends_a_light_command_with_code_130_and_no_traceback():
    program = subprocess.Popen(
        [PROGRAM, "validate", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore the interrupt, and so would the program.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    _until_reading(program.pid)
    program.send_signal(signal.SIGINT)
    assert program.wait(30) == 130
    assert program.stderr is not None and program.stderr.read() == ""


def _until_reading(pid: int) -> None:
    """Wait until a process blocks in a read of its standard input."""
    import time

    deadline = time.monotonic() + 30
    while not Path(f"/proc/{pid}/wchan").read_text().startswith(("pipe_read", "anon_pipe_read")):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_parser_is_built_without_a_command():
    assert build_parser().prog == "grpo"
