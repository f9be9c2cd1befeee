"""Reading a data set's file.

Aspects: file formats, separators of rows, encodings, numbers of invalid lines, files that are
missing or empty, grouping of faults, repeated rows, equality of JSONL and parquet.
"""

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_trainer.data import load_rows
from grpo_trainer.errors import InvalidDataError
from grpo_trainer.messages import Message, Row
from grpo_trainer.rewards import row_needs
from grpo_trainer.spec import RewardSpec, RewardType
from grpo_trainer.spec.training import DatasetSpec

GOOD = '{"messages": "1+1?", "gt_answer": "2"}'

BOXED = row_needs(RewardSpec(type=RewardType.BOXED))


def load(path: Path, **columns: str) -> tuple[Row, ...]:
    return load_rows(str(path), DatasetSpec(**columns), BOXED)


def load_bytes(tmp_path: Path, data: bytes) -> tuple[Row, ...]:
    path = tmp_path / "data.jsonl"
    path.write_bytes(data)
    return load(path)


def faults_of(tmp_path: Path, data: bytes) -> tuple[str, ...]:
    with pytest.raises(InvalidDataError) as caught:
        load_bytes(tmp_path, data)
    return caught.value.faults


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_the_source_of_a_row_is_its_file_and_line(tmp_path):
    (row,) = load_bytes(tmp_path, f"\n{GOOD}\n".encode())
    assert row == Row(f"{tmp_path}/data.jsonl line 2", (Message("user", "1+1?"),), "2")


def test_blank_lines_are_skipped_and_counted_as_lines(tmp_path):
    faults = faults_of(tmp_path, f"{GOOD}\n\n  \t\n[]\n".encode())
    assert len(faults) == 1
    assert "data.jsonl line 4: Invalid value: []" in faults[0]


@pytest.mark.parametrize(
    "data",
    [
        f"{GOOD}\r\n{GOOD}\r\n".encode(),
        f"\ufeff{GOOD}\n{GOOD}".encode(),
        f"{GOOD}\n{GOOD}".encode(),
    ],
    ids=["crlf", "byte order mark", "no newline at the end"],
)
def test_common_line_endings_and_a_byte_order_mark_are_accepted(tmp_path, data):
    assert len(load_bytes(tmp_path, data)) == 2


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c"])
def test_a_line_separator_of_unicode_inside_a_text_ends_no_row(tmp_path, character):
    text = f"a{character}b"
    row = json.dumps({"messages": text, "gt_answer": "2"}, ensure_ascii=False)
    # JSON requires escaped control characters.
    row = row.replace("\x0b", "\\u000b").replace("\x0c", "\\u000c")
    (loaded,) = load_bytes(tmp_path, row.encode())
    assert loaded.messages[0].content == text


@pytest.mark.parametrize("text", ["日本 🙂", "a\x00b", "\U0001d54f"])
def test_emoji_wide_characters_and_nul_pass(tmp_path, text):
    for ascii_only in (True, False):
        row = json.dumps({"messages": text, "gt_answer": "2"}, ensure_ascii=ascii_only)
        (loaded,) = load_bytes(tmp_path, row.encode())
        assert loaded.messages[0].content == text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"messages": "caf\xe9", "gt_answer": "2"}', "byte 0xe9 at byte 18"),
        (b"[" + GOOD.encode() + b"]", "must be a JSON object on one line"),
        (b'"text"', "must be a JSON object on one line"),
        (b'{"messages": "1+1?", "gt_answer": NaN}', "NaN"),
        (b'{"messages": "1+1?", "gt_answer": "2", "w": -Infinity}', "-Infinity"),
        (b'{"messages": "\\ud800", "gt_answer": "2"}', r"'\ud800'"),
        (b'{"messages": "1+1?", "gt_answer": "2", "tags": ["\\uDfff"]}', "'tags'"),
        (b"{'messages': 1}", "character 2"),
        (b'{"messages": "1+1?", "gt_answer": ' + b"9" * 5000 + b"}", "digits"),
        (b"[" * 100_000, "recursion"),
    ],
    ids=[
        "latin-1",
        "list",
        "string",
        "nan",
        "infinity",
        "lone surrogate",
        "nested surrogate",
        "python dict",
        "huge integer",
        "deep nesting",
    ],
)
def test_the_fault_of_a_line_that_is_not_a_json_object_has_its_number(tmp_path, line, message):
    (fault,) = faults_of(tmp_path, b"\n".join([GOOD.encode(), line, GOOD.encode(), b""]))
    assert "data.jsonl line 2: Invalid value: " in fault
    assert message in fault


def test_the_fault_of_a_truncated_last_line_suggests_truncation(tmp_path):
    for cut in (GOOD[:20].encode(), '{"messages": "日'.encode()[:-1]):
        (fault,) = faults_of(tmp_path, f"{GOOD}\n".encode() + cut)
        assert "line 2" in fault
        assert "truncated" in fault


def test_all_faults_of_all_rows_are_reported_together(tmp_path):
    lines = [GOOD, "[]", '{"messages": "", "gt_answer": null}', '{"gt_answer": "2"}']
    faults = faults_of(tmp_path, "\n".join(lines).encode())
    assert [fault.split(":")[0].rsplit("/")[-1] for fault in faults] == [
        "data.jsonl line 2",
        "data.jsonl line 3, column 'messages'",
        "data.jsonl line 3, column 'gt_answer'",
        "data.jsonl line 4, column 'messages'",
    ]


def test_faults_of_one_kind_are_one_line_with_their_number_and_the_first_row(tmp_path):
    lines = [GOOD] + ['{"messages": "1+1?"}'] * 5000 + [GOOD, "[]"]
    faults = faults_of(tmp_path, "\n".join(lines).encode())
    missing = 'Required value: this column, or its name in spec.dataset; the row has ["messages"]'
    assert faults == (
        f"{tmp_path}/data.jsonl: 5,000 rows, column 'gt_answer': {missing}; first: line 2",
        f"{tmp_path}/data.jsonl line 5003: Invalid value: []: must be a JSON object on one line",
    )


def test_up_to_three_faults_of_one_kind_are_listed_one_by_one(tmp_path):
    assert len(faults_of(tmp_path, b"[]\n" * 3)) == 3
    assert len(faults_of(tmp_path, b"[]\n" * 4)) == 1


def test_twenty_lines_of_faults_are_listed_and_the_others_counted(tmp_path):
    rows = [{"messages": "1+1?", f"column {number}": 1} for number in range(57)]
    faults = faults_of(tmp_path, "\n".join(map(json.dumps, rows)).encode())
    assert len(faults) == 21
    assert "line 20," in faults[19]
    assert faults[20] == "and 37 more faults"


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_a_file_without_rows_is_refused(tmp_path, data):
    (fault,) = faults_of(tmp_path, data)
    assert "data.jsonl: Required value: at least one row" in fault


def test_the_fault_of_a_missing_file_names_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        InvalidDataError, match=rf"^no.jsonl: no such file \(working directory: {tmp_path}\)$"
    ):
        load(Path("no.jsonl"))


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(
        InvalidDataError, match=r"Invalid value: directory: must be a \.jsonl or \.parquet"
    ):
        load(tmp_path)


@pytest.mark.parametrize("name", ["data.json", "data.csv", "data"])
def test_another_file_extension_is_refused_with_the_supported_ones(tmp_path, name):
    (tmp_path / name).write_text(GOOD)
    with pytest.raises(InvalidDataError, match=r"must be \.jsonl or \.parquet"):
        load(tmp_path / name)


def test_a_parquet_row_is_read_like_a_json_one(tmp_path):
    rows = [
        {"messages": [{"role": "user", "content": f"{i}?"}], "gt_answer": str(i)} for i in range(3)
    ]
    loaded = load(write_parquet(tmp_path / "data.parquet", rows))
    lines = "\n".join(map(json.dumps, rows))
    expected = load_bytes(tmp_path, lines.encode())
    assert [(r.messages, r.answer) for r in loaded] == [(r.messages, r.answer) for r in expected]
    assert loaded[2].source == f"{tmp_path}/data.parquet row 3"


def test_the_fault_of_a_parquet_file_without_the_column_lists_its_columns(tmp_path):
    path = write_parquet(tmp_path / "gsm8k.parquet", [{"question": "1+1?", "answer": "#### 2"}])
    with pytest.raises(InvalidDataError) as caught:
        load(path, prompt_column="question")
    (fault,) = caught.value.faults
    assert "gsm8k.parquet row 1, column 'gt_answer'" in fault
    assert '["question", "answer"]' in fault


def test_a_file_that_is_not_parquet_is_refused(tmp_path):
    path = tmp_path / "data.parquet"
    path.write_text(GOOD)
    with pytest.raises(
        InvalidDataError, match=r"data.parquet: Invalid value: file: must be a parquet file"
    ):
        load(path)


def test_the_fault_of_parquet_text_that_is_not_utf8_names_its_row(tmp_path):
    good = [b"2", b"2"]
    texts = pa.array([*good, b"\xe9", *good]).view(pa.string())
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"messages": ["1+1?"] * 5, "gt_answer": texts}), path)
    with pytest.raises(InvalidDataError) as caught:
        load(path)
    (fault,) = caught.value.faults
    assert "data.parquet row 3: Invalid value: " in fault


def test_repeated_rows_are_kept_and_counted(tmp_path, caplog):
    other = '{"messages": "1+1?", "gt_answer": "3"}'
    with caplog.at_level(logging.WARNING):
        rows = load_bytes(tmp_path, "\n".join([GOOD, other, GOOD, GOOD]).encode())
    assert len(rows) == 4
    assert "2 of 4 rows repeat an earlier row" in caplog.text


def test_distinct_rows_raise_no_warning(tmp_path, caplog):
    load_bytes(tmp_path, f'{GOOD}\n{{"messages": "2+2?", "gt_answer": "4"}}'.encode())
    assert not caplog.records


@pytest.mark.parametrize(
    ("path", "count"), [("builtin://addition", 1307), ("builtin://addition-held-out", 293)]
)
def test_the_built_in_sums_pass_the_same_rules(path, count):
    rows = load_rows(path, DatasetSpec(), BOXED)
    assert len(rows) == count
    assert rows[0].source == f"{path} row 1"


def test_an_unknown_built_in_data_set_is_refused_with_the_known_ones():
    with pytest.raises(
        InvalidDataError, match=r"must be builtin://addition or builtin://addition-held"
    ):
        load_rows("builtin://subtraction", DatasetSpec(), BOXED)


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda t: t.strip())
turns = st.fixed_dictionaries({"role": st.just("user"), "content": texts})
prompts = texts | turns | st.lists(turns, min_size=1, max_size=3)
rows_of_a_file = st.lists(
    st.fixed_dictionaries({"messages": prompts, "gt_answer": texts}), min_size=1, max_size=8
)


@settings(deadline=None)
@given(rows=rows_of_a_file, ascii_only=st.booleans())
def test_any_valid_rows_come_back_from_jsonl_as_written(tmp_path_factory, rows, ascii_only):
    path = tmp_path_factory.mktemp("rows") / "data.jsonl"
    lines = (json.dumps(row, ensure_ascii=ascii_only) for row in rows)
    path.write_bytes("\n".join(lines).encode())
    loaded = load(path)
    assert [row.answer for row in loaded] == [row["gt_answer"] for row in rows]
    for given_row, row in zip(rows, loaded, strict=True):
        given_turns = given_row["messages"]
        if isinstance(given_turns, str):
            given_turns = {"role": "user", "content": given_turns}
        if isinstance(given_turns, dict):
            given_turns = [given_turns]
        assert [{"role": m.role, "content": m.content} for m in row.messages] == given_turns
