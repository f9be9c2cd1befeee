"""Splits of data sets on the Hub, from a server on this machine in its place.

Aspects: the layouts of files, the choice of configuration and split, revisions, private and gated
repositories, what is missing, the cache while the server is gone.
"""

import io
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grpo_trainer.data.hub import parse_address
from grpo_trainer.errors import InvalidDataError

COMMIT = "a" * 40
TOKEN = "hf_secret"


def parquet(*values: int) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table({"question": [f"{v}?" for v in values]}), stream)
    return stream.getvalue()


FILES = {
    "main/train-00000-of-00002.parquet": parquet(1, 2),
    "main/train-00001-of-00002.parquet": parquet(3),
    "main/test-00000-of-00001.parquet": parquet(4),
    "socratic/train-00000-of-00001.parquet": parquet(5),
    "README.md": b"#",
}
CONVERTED = {"default/train/0000.parquet": parquet(6), "default/train/0001.parquet": parquet(7)}
FLAT = {"data/train-00000-of-00001.parquet": parquet(8)}
REPOSITORIES: dict[str, dict[str, dict[str, bytes]]] = {
    "o/sums": {"main": FILES, COMMIT: FILES, "refs/convert/parquet": CONVERTED},
    "o/flat": {"main": FLAT, COMMIT: FLAT},
    "o/text": {"main": {"data.csv": b"a"}, COMMIT: {}},
    "o/private": {"main": FLAT, COMMIT: FLAT},
}


class Hub(BaseHTTPRequestHandler):
    """As much of the Hub as a download needs."""

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, *_: Any) -> None: ...

    def _answer(self) -> None:
        path = self.path.replace("%2F", "/")
        api = path.startswith("/api/")
        parts = path.removeprefix("/api").removeprefix("/datasets/").split("/")
        repository, rest = "/".join(parts[:2]), "/".join(parts[2:])
        if repository == "o/gated":
            return self._fail(403, "GatedRepo")
        allowed = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if repository not in REPOSITORIES or (repository == "o/private" and not allowed):
            return self._fail(404, "RepoNotFound")
        revisions = REPOSITORIES[repository]
        if api:
            revision = rest.removeprefix("revision/") or "main"
            if revision not in revisions:
                return self._fail(404, "RevisionNotFound")
            commit = "b" * 40 if revision.startswith("refs/") else COMMIT
            revisions.setdefault(commit, revisions[revision])
            names = [{"rfilename": name} for name in revisions[revision]]
            body = {"id": repository, "sha": commit, "siblings": names}
            return self._send(json.dumps(body).encode())
        revision, _, name = rest.removeprefix("resolve/").partition("/")
        return self._send(revisions[revision][name], etag=f'"{abs(hash(name))}"', commit=revision)

    def _send(self, body: bytes, etag: str = "", commit: str = "") -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        if etag:
            self.send_header("ETag", etag)
            self.send_header("X-Repo-Commit", commit)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def _fail(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


READ = """
import json, sys
from grpo_trainer.data.files import read_records
for path in sys.argv[1:]:
    try:
        rows = [[row.source, row.columns["question"]] for row in read_records(path)]
    except Exception as error:
        rows = f"{type(error).__name__}: {error}"
    print(json.dumps(rows))
"""


def read(home: Path, url: str, paths: list[str], token: str = "") -> dict[str, Any]:
    """What a process with this server in place of the Hub reads."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "HF_HOME": str(home),
        "HF_ENDPOINT": url,
        "HF_HUB_DISABLE_XET": "1",
        **({"HF_TOKEN": token} if token else {}),
    }
    command = [sys.executable, "-c", READ, *paths]
    printed = subprocess.check_output(command, env=environment, text=True, timeout=120)
    return dict(zip(paths, map(json.loads, printed.splitlines()), strict=True))


@contextmanager
def running_hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    with running_hub() as url:
        yield url


PATHS = [
    "hf://o/sums/main:train",
    f"hf://o/sums/main@{COMMIT}:test",
    "hf://o/sums@refs/convert/parquet:train",
    "hf://o/flat:train",
    "hf://o/sums:train",
    "hf://o/sums/other:train",
    "hf://o/sums/main:validation",
    "hf://o/sums@v9:train",
    "hf://o/absent:train",
    "hf://o/gated:train",
    "hf://o/private:train",
    "hf://o/text:train",
    "hf://o/sums",
]


@pytest.fixture(scope="module")
def found(hub: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return read(tmp_path_factory.mktemp("home"), hub, PATHS)


@pytest.mark.parametrize(
    ("path", "questions"),
    [
        (PATHS[0], ["1?", "2?", "3?"]),
        (PATHS[1], ["4?"]),
        (PATHS[2], ["6?", "7?"]),
        (PATHS[3], ["8?"]),
    ],
)
def test_a_split_is_all_of_its_files_in_order(found, path, questions):
    assert [question for _, question in found[path]] == questions


def test_a_row_is_named_by_address_and_file(found):
    source, _ = found[PATHS[0]][2]
    assert source == f"{PATHS[0]} main/train-00001-of-00002.parquet row 1"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (PATHS[4], "Invalid value: configuration: must be named, as in hf://"),
        (PATHS[5], "Invalid value: configuration 'other': must be one of 'main', 'socratic'"),
        (PATHS[6], "Invalid value: split 'validation': must be one of 'test', 'train'"),
        (PATHS[7], "Invalid value: revision 'v9': must be a branch, tag or commit"),
        (PATHS[8], "Invalid value: repository 'o/absent': must be a data set on the Hub"),
        (PATHS[9], "Invalid value: repository 'o/gated': must be a data set that HF_TOKEN gives"),
        (PATHS[10], "Invalid value: repository 'o/private': must be a data set on the Hub"),
        (PATHS[11], "must have parquet files; @refs/convert/parquet has those"),
        (PATHS[12], "must be hf://OWNER/NAME[/CONFIG][@REVISION]:SPLIT"),
    ],
)
def test_what_is_missing_is_named(found, path, message):
    assert found[path].startswith(f"InvalidDataError: {path}: ")
    assert message in found[path]


def test_a_token_opens_a_private_data_set(hub, tmp_path):
    path = "hf://o/private:train"
    assert [question for _, question in read(tmp_path, hub, [path], TOKEN)[path]] == ["8?"]


def test_while_the_hub_is_gone_the_cache_is_used_and_what_it_lacks_may_be_retried(tmp_path):
    flat, sums = "hf://o/flat:train", "hf://o/sums/main:train"
    with running_hub() as url:
        before = read(tmp_path, url, [flat])[flat]
    after = read(tmp_path, url, [flat, sums])
    assert after[flat] == before
    assert after[sums].startswith(f"RunFailedError: {sums}: the Hub cannot be reached")


def test_a_part_of_a_split_in_the_cache_is_not_used_for_the_whole(tmp_path):
    train, test = "hf://o/sums/main:train", "hf://o/sums/main:test"
    with running_hub() as url:
        read(tmp_path, url, [train, test])
    (last,) = tmp_path.rglob("train-00001-of-00002.parquet")
    last.unlink()
    found = read(tmp_path, url, [train, test])
    assert found[train].startswith(f"RunFailedError: {train}: the Hub cannot be reached")
    assert [question for _, question in found[test]] == ["4?"]


@pytest.mark.parametrize("path", ["hf://a:b", "hf://a/b", "hf://a/b@:c", "hf://a/b:c:d", "hf://:a"])
def test_an_address_without_owner_name_and_split_is_refused(path):
    with pytest.raises(InvalidDataError, match="must be hf://OWNER/NAME"):
        parse_address(path)
