"""Refusals of the API server and a command line: one line each that says what to mend."""

import json

import pytest

from grpo_kubectl.api import Target
from grpo_kubectl.cli import build_parser, main
from grpo_kubectl.errors import Exit, ForbiddenError, NotFoundError, refusal
from grpo_operator.model.resources import JOBS, PODS

LIST = Target(JOBS, "lab")


def answer(**fields) -> str:
    return json.dumps({"kind": "Status", **fields})


def test_a_missing_right_is_named_with_verb_and_resource():
    error = refusal("list", str(LIST), 403, answer(message="User u cannot list"))
    assert isinstance(error, ForbiddenError)
    assert str(error) == (
        "not permitted: list grpojobs.grpo-operator.io in namespace lab: User u cannot list"
    )


def test_a_subresource_and_all_namespaces_are_named():
    assert str(Target(PODS, "lab", "p", "log")) == "pods/log p in namespace lab"
    assert str(Target(JOBS, None)) == "grpojobs.grpo-operator.io in all namespaces"


def test_a_missing_object_is_told_apart_from_a_missing_kind():
    missing = refusal("get", str(LIST), 404, answer(message="no x", details={"name": "x"}))
    assert isinstance(missing, NotFoundError)
    unknown = refusal("get", str(LIST), 404, "404 page not found")
    assert not isinstance(unknown, NotFoundError)
    assert "does not know grpojobs.grpo-operator.io" in str(unknown)


def test_refused_credentials_are_told():
    assert "log in again" in str(refusal("get", str(LIST), 401, answer(message="Unauthorized")))


def test_what_the_api_server_says_fits_on_a_line():
    error = refusal("patch", str(LIST), 422, answer(message="invalid:\n  a\n  b"))
    assert str(error).endswith("invalid: a b (422)")


@pytest.mark.parametrize(
    "line",
    [
        "list --output yaml",
        "scale math 0",
        "scale math many",
        "wait math --for Done",
        "wait math --timeout soon",
        "logs math --role driver --tail -1",
        "copy-checkpoint math",
        "status",
        "",
    ],
)
def test_a_wrong_command_line_ends_with_code_2(line, capsys):
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == Exit.USAGE
    assert "kubectl grpo" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["-n lab --context c list", "list -n lab --context c"])
def test_the_options_of_kubectl_stand_before_or_behind_the_command(line):
    given = build_parser().parse_args(line.split())
    assert (given.namespace, given.context) == ("lab", "c")


def test_without_a_kubeconfig_the_file_is_named(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert main(["list"]) == Exit.FAILED
    assert capsys.readouterr().err == (
        f"error: no cluster: there is no {tmp_path}/none; give --kubeconfig or set KUBECONFIG\n"
    )


@pytest.mark.parametrize("content", ["", "[1", "{}", "contexts: 3"])
def test_a_file_that_is_no_kubeconfig_is_named(content, capsys, tmp_path):
    path = tmp_path / "config"
    path.write_text(content)
    assert main(["list", "--kubeconfig", str(path)]) == Exit.FAILED
    error = capsys.readouterr().err
    assert error.startswith(f"error: kubeconfig {path}: ")
    assert error.count("\n") == 1


def test_a_cluster_that_does_not_answer_is_named(capsys, tmp_path):
    path = tmp_path / "config"
    path.write_text(
        json.dumps(
            {
                "current-context": "a",
                "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        )
    )
    assert main(["list", "--kubeconfig", str(path)]) == Exit.FAILED
    assert capsys.readouterr().err.startswith("error: no answer from http://127.0.0.1:9: ")
