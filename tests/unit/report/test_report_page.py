"""The page: it holds the data of its runs, needs no network, and no text becomes markup."""

import base64
import gzip
import json
import re

import pytest

from grpo_trainer.cli import main
from grpo_trainer.report import load_run, render_page
from unit.report.builders import completion, write_lines, write_run

LIMIT = 1_000_000


def payload(page: str) -> dict:
    (packed,) = re.findall(r'<script id="data" type="application/octet-stream">([^<]*)<', page)
    return json.loads(gzip.decompress(base64.b64decode(packed)))


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


def test_the_page_holds_curves_evaluations_completions_and_settings(run):
    (found,) = payload(render_page([load_run(run, LIMIT)], "sums"))["runs"]
    assert found["curves"]["grpo_reward_mean"] == [[1, 2, 3], [0.5, 1.0, 1.5]]
    assert found["evaluations"] == [["held out", 2, 4, 0.75, 0.25, ""]]
    assert len(found["samples"]) == 6
    assert found["environment"] == {"torch": "2.13.0"}
    assert found["settings"] == {"spec.seed": 1, "spec.sampling.topK": 5}


def test_tokens_with_their_log_ratios_and_reward_parts_are_in_the_page(run):
    logged = completion(tokens=["2", "!"], log_ratios=[0.1, None], reward_parts={"form": 1.0})
    write_lines(run / "rollouts" / "step_2.jsonl", [logged])
    (found,) = payload(render_page([load_run(run, LIMIT)], "sums"))["runs"]
    places = [found["fields"].index(name) + 2 for name in ("tokens", "log_ratios", "reward_parts")]
    rows = [[row[place] for place in places] for row in found["samples"]]
    assert [["2", "!"], [0.1, None], {"form": 1.0}] in rows
    assert [None, None, None] in rows


def test_the_page_loads_nothing(run):
    page = render_page([load_run(run, LIMIT)], "sums")
    assert not re.search(r"<(script|link|img|iframe)[^>]*\s(src|href)=", page)


def test_markup_in_names_and_completions_stays_text(run):
    evil = "</script><img src=x onerror=alert(1)>"
    write_lines(run / "rollouts" / "step_2.jsonl", [completion(completion=evil)])
    page = render_page([load_run(run, LIMIT)], evil)
    assert evil not in page
    assert evil in [row[4] for row in payload(page)["runs"][0]["samples"]]


def test_equal_runs_give_equal_pages(run):
    assert render_page([load_run(run, LIMIT)], "a") == render_page([load_run(run, LIMIT)], "a")


def test_the_command_writes_the_page_into_the_first_run(run, tmp_path, capsys):
    second = write_run(tmp_path / "second", name="other")
    assert main(["report", str(run), str(second)]) == 0
    path = run / "report.html"
    assert capsys.readouterr().out == f"{path}\n"
    assert [r["name"] for r in payload(path.read_text())["runs"]] == ["sums", "other"]


def test_the_command_refuses_a_directory_without_a_run(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 64
    assert capsys.readouterr().err.startswith(f"{tmp_path}: not a run directory")


def test_an_output_that_cannot_be_written_is_one_sentence(run, tmp_path, capsys):
    assert main(["report", str(run), "-o", str(tmp_path / "no" / "x.html")]) == 64
    assert "No such file or directory" in capsys.readouterr().err
