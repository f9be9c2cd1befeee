"""The preStop hook of head and consumers: it drains the running driver and waits for its exit,
returns at once without one, and ignores proxies."""

import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

import grpo_operator.render

SCRIPT = Path(grpo_operator.render.__file__).with_name("drain.py")
BEARER = "Bearer secret"


class Driver(BaseHTTPRequestHandler):
    """Answers a few times after it was asked to drain, then hangs up without an answer."""

    asked: list[tuple[str, str | None]]
    answers_left: int

    def do_POST(self):
        self.answer()

    def do_GET(self):
        type(self).answers_left -= 1
        if self.answers_left > 0:
            self.answer()

    def answer(self):
        self.asked.append((f"{self.command} {self.path}", self.headers["Authorization"]))
        accepted = self.headers["Authorization"] == BEARER
        self.send_response(202 if accepted else 401)
        self.end_headers()

    def log_message(self, *arguments):
        pass


@contextmanager
def served(answers: int):
    """A driver that answers so many polls; yields its URL and what it was asked."""
    handler = type("Handler", (Driver,), {"asked": [], "answers_left": answers})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", handler.asked
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def run(tmp_path):
    """Run the hook in a pod whose volume has the file that a driver writes."""

    def run(url: str | None, token: str = "secret", **variables: str) -> None:
        if url is not None:
            (tmp_path / "endpoint").write_text(f"{url}\n")
        environment = {"GRPO_RUN_DIR": str(tmp_path), "RAY_AUTH_TOKEN": token, **variables}
        subprocess.run([sys.executable, SCRIPT], env=environment, timeout=60, check=True)

    return run


def test_a_driver_is_asked_with_the_token_and_waited_for(run):
    with served(3) as (url, asked):
        run(url)
    assert asked == [("POST /drain", BEARER), *[("GET /healthz", BEARER)] * 2]


def test_the_end_of_the_run_is_left_for_the_operator_to_read(run):
    with served(3) as (url, asked):
        run(url)
    assert "GET /progress" not in [call for call, _ in asked]


def test_without_a_driver_there_is_nothing_to_wait_for(run):
    run(None)
    with served(1) as (url, _):
        pass
    run(url)


def test_the_driver_of_another_job_at_the_same_address_is_left_alone(run):
    with served(1000) as (url, asked):
        run(url, token="of this job")
    assert [call for call, _ in asked] == ["POST /drain"]


def test_the_wait_ends_after_the_time_of_a_drain(run):
    with served(1000) as (url, asked):
        run(url, GRPO_DRAIN_SECONDS="1")
    assert 1 < len(asked) < 10


def test_a_proxy_of_the_environment_gets_neither_the_call_nor_the_token(run):
    with served(1) as (url, asked), served(1) as (proxy, asked_of_proxy):
        run(url, http_proxy=proxy, HTTP_PROXY=proxy, all_proxy=proxy)
    assert asked_of_proxy == []
    assert asked[0] == ("POST /drain", BEARER)
