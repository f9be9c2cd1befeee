"""The preStop hook of a head: it drains a running driver, returns at once without one, and ignores
proxies."""

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import grpo_operator.render

SCRIPT = Path(grpo_operator.render.__file__).with_name("drain.py")


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
        self.send_response(202)
        self.end_headers()

    def log_message(self, *arguments):
        pass


def run(url: str, **variables: str) -> int:
    environment = {"GRPO_DRIVER_URL": url, "RAY_AUTH_TOKEN": "secret", **variables}
    return subprocess.run([sys.executable, SCRIPT], env=environment, timeout=60).returncode


def test_a_driver_is_asked_with_the_token_and_waited_for():
    handler = type("Handler", (Driver,), {"asked": [], "answers_left": 3})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert run(f"http://127.0.0.1:{server.server_port}") == 0
        finally:
            server.shutdown()
            thread.join()
    bearer = "Bearer secret"
    assert handler.asked == [("POST /drain", bearer), *[("GET /progress", bearer)] * 2]


def test_without_a_driver_there_is_nothing_to_wait_for():
    with HTTPServer(("127.0.0.1", 0), Driver) as server:
        port = server.server_port
    assert run(f"http://127.0.0.1:{port}") == 0


def test_a_proxy_of_the_environment_gets_neither_the_call_nor_the_token():
    driver = type("Handler", (Driver,), {"asked": [], "answers_left": 1})
    proxy = type("Handler", (Driver,), {"asked": [], "answers_left": 1})
    with HTTPServer(("127.0.0.1", 0), driver) as server, HTTPServer(("127.0.0.1", 0), proxy) as via:
        threads = [threading.Thread(target=each.serve_forever) for each in (server, via)]
        for thread in threads:
            thread.start()
        try:
            url = f"http://127.0.0.1:{via.server_port}"
            proxies = {"http_proxy": url, "HTTP_PROXY": url, "all_proxy": url}
            assert run(f"http://127.0.0.1:{server.server_port}", **proxies) == 0
        finally:
            for each in (server, via):
                each.shutdown()
            for thread in threads:
                thread.join()
    assert proxy.asked == []
    assert driver.asked[0] == ("POST /drain", "Bearer secret")
