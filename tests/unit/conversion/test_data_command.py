"""`grpo data`: formats, columns, answers, the split, lengths; a sentence for what it refuses."""

import csv
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from grpo_trainer.cli import main
from grpo_trainer.conversion import Lengths, split
from grpo_trainer.conversion.rows import Converted
from grpo_trainer.data import load_rows
from grpo_trainer.messages import Message, Row
from grpo_trainer.rewards import row_needs
from grpo_trainer.spec.reward import RewardSpec
from grpo_trainer.spec.training import DatasetSpec

GSM8K = [
    {"question": "How many are 1 and 2?", "answer": "1+2=<<1+2=3>>3\n#### 3"},
    {"question": "How many are 700 and 800?", "answer": "It is 1,500.\n#### 1,500"},
    {"question": "How many are 5 and 5?", "answer": "#### 10"},
]
WANTED = [
    {"messages": "How many are 1 and 2?", "gt_answer": "3"},
    {"messages": "How many are 700 and 800?", "gt_answer": "1,500"},
    {"messages": "How many are 5 and 5?", "gt_answer": "10"},
]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, rows: list[dict]) -> str:
    """A file of rows, in the format of its name."""
    path = Path(name)
    kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if kind == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
        return name
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        if kind in (".csv", ".tsv"):
            writer = csv.DictWriter(file, rows[0], delimiter="\t" if kind == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
        elif kind == ".json":
            json.dump({"version": 1, "data": rows}, file)
        else:
            file.write("".join(f"{json.dumps(row)}\n\n" for row in rows))
    return name


def written(name: str = "out/train.jsonl") -> list[dict]:
    return [json.loads(line) for line in Path(name).read_text().splitlines()]


def convert(*arguments: str) -> int:
    return main(["data", "-o", "out", *arguments])


FORMATS = ("parquet", "csv", "tsv", "json", "jsonl", "csv.gz", "json.gz", "jsonl.gz")


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_becomes_rows_that_the_trainer_reads(kind):
    assert convert(write(f"gsm8k.{kind}", GSM8K)) == 0
    assert written() == WANTED
    assert len(load_rows("out/train.jsonl", DatasetSpec(), row_needs(RewardSpec()))) == 3


def test_it_prints_what_it_chose_what_it_wrote_and_the_next_command(capsys):
    repeated = write("b.jsonl", GSM8K[:1])
    assert convert(write("a.csv", GSM8K), repeated, "--held-out", "1") == 0
    assert capsys.readouterr().out.splitlines() == [
        "read       4 rows with columns question, answer",
        "prompt     {question}",
        "answer     {answer}, the text behind ####",
        "left out   1 rows that repeat an earlier one",
        "wrote      out/train.jsonl: 2 rows",
        "wrote      out/held-out.jsonl: 1 rows",
        "next       grpo check FILE --set spec.dataset.path=out/train.jsonl --set "
        "spec.reward.type=boxed --set spec.evaluation.datasets.held-out=out/held-out.jsonl",
    ]


def test_templates_join_columns_and_reach_into_objects():
    rows = [{"task": "Add", "meta": {"a": 1, "sum": 3}, "id": "x"}]
    options = ["--prompt", "{task}: {{{meta.a}}}\\n", "--answer", "{meta.sum}", "--keep", "id"]
    assert convert(write("rows.jsonl", rows), *options) == 0
    assert written() == [{"id": "x", "messages": "Add: {1}\n", "gt_answer": 3}]


def test_conversations_and_boxed_solutions_are_taken_as_they_are():
    turns = [{"role": "user", "content": "1+1?"}]
    rows = [{"messages": turns, "solution": "So \\boxed{\\frac{1}{2}}."}]
    assert convert(write("rows.parquet", rows)) == 0
    assert written() == [{"messages": turns, "gt_answer": "\\frac{1}{2}"}]


def test_a_custom_reward_gets_every_column():
    rows = [{"prompt": "Write.", "style": "short", "words": 3}]
    assert convert(write("rows.jsonl", rows), "--reward", "custom") == 0
    assert written() == [{"style": "short", "words": 3, "messages": "Write."}]


def test_a_code_reward_gets_its_tests():
    tests = {"inputs": ["1"], "outputs": ["2"]}
    rows = [{"problem": "Add one.", "test_cases": tests, "url": "x"}]
    assert convert(write("rows.jsonl", rows), "--reward", "code") == 0
    assert written() == [{"test_cases": tests, "messages": "Add one."}]


BAD = [
    ([], "--output: Invalid value: 'out': train.jsonl exists there; remove it or choose another "),
    (["--prompt", "{quest}"], "--prompt: Invalid value: '{quest}': no column 'quest'; the table "),
    (["--prompt", "no column"], "must contain a column, such as {question}"),
    (["--prompt", "{question"], "--prompt: Invalid value: '{question': "),
    (["--keep", "id"], "--keep: Invalid value: 'id': must be one of question, answer"),
    (["--held-out", "3"], "--held-out: Invalid value: 3: must leave prompts on both sides of 3"),
    (["--held-out", "1.5"], "Invalid value: '1.5': must be a number, or a share below 1"),
    (["--answer-form", "boxed"], "column 'answer': Invalid value: "),
    (["--tokenizer", "nowhere"], '--tokenizer: Invalid value: "nowhere": must be a model with a '),
]


@pytest.mark.parametrize(("options", "words"), BAD, ids=lambda value: str(value)[:30])
def test_an_option_that_cannot_work_is_refused_and_nothing_is_written(
    options, words, capsys, monkeypatch
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    table = write("a.csv", GSM8K)
    if not options:
        Path("out").mkdir()
        Path("out/train.jsonl").write_text("mine\n")
    assert convert(table, *options) == 64
    printed = capsys.readouterr().err
    assert words in printed
    assert len(printed.splitlines()) <= 3
    assert [p.read_text() for p in Path(".").glob("out/*")] == ([] if options else ["mine\n"])


FILES = [
    ("rows.md", b"x", "rows.md: Invalid value: file extension '.md': must be .jsonl, .json, .csv"),
    ("a.csv", b"q,q\n1,2\n", 'a.csv: Invalid value: ["q"]: must be column names, each once'),
    ("a.csv", b"question,answer\n1\n", "a.csv row 1: Invalid value: 1 values: must be 2, as many"),
    ("a.csv", b"question,answer\n", "a.csv: Required value: at least one row"),
    ("a.csv", b"question,answer\n\xff,1\n", "a.csv: Invalid value: byte 0xff: must be text in UTF"),
    ("a.json", b"{", "a.json: Invalid value: file: must be JSON (Expecting property name"),
    ("a.json", b'{"a": 1}', "must be a list of objects, or an object with one"),
    ("a.jsonl", b"[1]\n", "a.jsonl line 1: Invalid value: [1]: must be a JSON object"),
    ("a.csv.gz", b"question\n", "a.csv.gz: Invalid value: Not a gzipped file"),
    ("a.parquet", b"x", "a.parquet: Invalid value: file: must be a parquet file"),
    (
        "a.csv",
        b"question,answer\n,3\n",
        "a.csv row 1, column 'question': Invalid value: \"\": must",
    ),
    ("a.csv", b"text,answer\nx,3\n", "--prompt: Required value: a template of columns such as"),
]


@pytest.mark.parametrize(("name", "content", "words"), FILES, ids=lambda value: str(value)[:40])
def test_a_file_that_cannot_be_read_is_refused_in_a_sentence(name, content, words, capsys):
    Path(name).write_bytes(content)
    assert convert(name) == 64
    assert words in capsys.readouterr().err
    assert not Path("out").exists()


def test_a_file_that_is_not_there_is_named(capsys, here):
    assert convert("nowhere.csv") == 64
    assert capsys.readouterr().err == f"nowhere.csv: no such file (working directory: {here})\n"


def test_rows_that_cannot_be_trained_on_may_be_left_out(capsys):
    rows = [*GSM8K, {"question": " ", "answer": "#### 1"}, {"question": "q", "answer": "#### (,"}]
    table = write("a.jsonl", rows)
    assert convert(table) == 64
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert convert(table, "--skip-invalid") == 0
    assert "left out   2 invalid rows" in capsys.readouterr().out
    assert written() == WANTED


def test_a_file_on_the_hub_comes_from_the_cache_without_a_network(here, monkeypatch):
    from huggingface_hub import constants

    cache, commit = here / "hub", "0" * 40
    repository = cache / "datasets--openai--gsm8k"
    folder = repository / "snapshots" / commit / "main"
    folder.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    write(str(folder / "train.parquet"), GSM8K)
    assert convert("hf://datasets/openai/gsm8k/main/train.parquet") == 0
    assert written() == WANTED


@pytest.mark.parametrize(
    ("uri", "code", "words"),
    [
        ("hf://datasets/openai/gsm8k", 64, "must be hf://datasets/OWNER/NAME/FILE"),
        ("hf://datasets/openai/gsm8k/main/a.parquet", 1, "the Hub cannot be reached"),
    ],
)
def test_a_hub_file_that_cannot_be_had_is_refused(uri, code, words, capsys, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert convert(uri) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{uri}: ")
    assert words in line


@pytest.fixture
def tokenizer(here) -> str:
    """A token for each word, and a template that adds nothing."""
    words = {"<unk>": 0, "w": 1}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder = here / "model"
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}"
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": template + "{% endfor %}",
        "unk_token": "<unk>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return str(folder)


def test_lengths_in_tokens_come_with_a_limit_to_set(tokenizer, capsys):
    rows = [{"question": "w " * n, "answer": str(n)} for n in [*range(1, 100), 900]]
    assert convert(write("a.jsonl", rows), "--tokenizer", tokenizer) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:-1] == [
        "tokens     prompts of 1 to 900, median 50, 99 % at most 99, with system message and chat "
        "template",
        "propose    spec.sampling.maxPromptTokens: 128 (99 of 100 prompts fit)",
    ]
    assert lines[-1].endswith("--set spec.sampling.maxPromptTokens=128")


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=300))
def test_a_proposed_limit_holds_nearly_all_prompts(tokens):
    lengths = Lengths(tuple(sorted(tokens)))
    assert lengths.within(lengths.proposal) >= 0.99 * len(tokens)
    assert lengths.proposal % 64 == 0


def rows_of(prompts: list[int]) -> list[Converted]:
    found = [Row(f"row {n}", (Message("user", str(p)),), str(n)) for n, p in enumerate(prompts)]
    return [Converted({}, row) for row in found]


@given(st.lists(st.integers(0, 20), min_size=2, max_size=60), st.integers(0, 2**32))
def test_no_prompt_is_on_both_sides_and_no_row_is_lost(prompts, seed):
    rows = rows_of(prompts)
    if len(set(prompts)) < 2:
        return
    train, held_out = split(rows, 1, seed)
    assert sorted([*train, *held_out], key=rows.index) == rows
    assert {r.row.messages for r in train}.isdisjoint({r.row.messages for r in held_out})
    assert split(rows, 1, seed) == (train, held_out)


def test_another_seed_holds_out_other_prompts():
    rows = rows_of(list(range(100)))
    assert split(rows, 0.2, 1)[1] != split(rows, 0.2, 2)[1]
    assert len(split(rows, 0.2, 1)[1]) == 20
