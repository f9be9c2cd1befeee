"""Errors of the API server and of the command line: one line each that names the fault."""

import json

import pytest

from grpo_kubectl.cli import build_parser, main
from grpo_kubectl.errors import Exit, explain
from grpo_operator.clients.errors import error_of
from grpo_operator.clients.transport import describe
from grpo_operator.model.resources import JOBS, PODS

SERVER = "https://cluster"


def explained(verb: str, code: int, body: str) -> str:
    return explain(error_of(code, body, describe(verb, JOBS, "lab")), SERVER)


def answer(**fields) -> str:
    return json.dumps({"kind": "Status", **fields})


def test_a_missing_right_is_named_with_verb_and_resource():
    assert explained("list", 403, answer(message="User u cannot list")) == (
        "not permitted: list grpojobs.grpo-operator.io in namespace lab: User u cannot list"
    )


def test_a_subresource_and_all_namespaces_are_named():
    assert describe("get", PODS, "lab", "p", "log") == "get pods/log p in namespace lab"
    assert describe("list", JOBS, None) == "list grpojobs.grpo-operator.io in all namespaces"


def test_a_missing_object_is_distinguished_from_a_missing_kind():
    missing = explained("get", 404, answer(message="no x", details={"name": "x"}))
    assert missing.endswith("no x (404)")
    unknown = explained("get", 404, "404 page not found")
    assert "grpojobs.grpo-operator.io in namespace lab: the API server does not serve" in unknown


def test_refused_credentials_are_reported():
    assert "log in again" in explained("get", 401, answer(message="Unauthorized"))


def test_a_message_of_the_api_server_is_put_on_one_line():
    error = explained("patch", 422, answer(message="invalid:\n  a\n  b"))
    assert error.endswith("invalid: a b (422)")


@pytest.mark.parametrize(
    "line",
    [
        "list --output table",
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
def test_an_invalid_command_line_exits_with_code_64(line, capsys):
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == Exit.USAGE
    assert "kubectl grpo" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["-n lab --context c list", "list -n lab --context c"])
def test_the_options_of_kubectl_are_accepted_before_and_after_the_command(line):
    given = build_parser().parse_args(line.split())
    assert (given.namespace, given.context) == ("lab", "c")


def test_without_a_kubeconfig_the_file_is_named(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert main(["list"]) == Exit.FAILED
    assert capsys.readouterr().err == (
        f"error: no cluster: {tmp_path}/none does not exist; set KUBECONFIG or use --kubeconfig\n"
    )


@pytest.mark.parametrize("content", ["", "[1", "{}", "contexts: 3"])
def test_a_file_that_is_not_a_kubeconfig_is_named(content, capsys, tmp_path):
    path = tmp_path / "config"
    path.write_text(content)
    assert main(["list", "--kubeconfig", str(path)]) == Exit.FAILED
    error = capsys.readouterr().err
    assert error.startswith(f"error: kubeconfig {path}: ")
    assert error.count("\n") == 1


def test_a_cluster_that_does_not_respond_is_named(capsys, tmp_path):
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
    assert capsys.readouterr().err.startswith("error: no response from http://127.0.0.1:9: ")


def test_the_version_needs_no_cluster(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert main(["version"]) == Exit.DONE
    assert capsys.readouterr().out.startswith("kubectl-grpo ")
