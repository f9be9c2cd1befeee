"""Serves an environment over HTTP: one file of the standard library, to copy into any image.

    class Echo(Environment):
        roles = ("user",)

        def reset(self, row, seed):
            return Task([{"role": "user", "content": row["question"]}])

        def step(self, completion):
            return Observation(done=True, reward=float(completion == "yes"))

    python sdk.py env.py:Echo --port 8000

An object of the class is one episode. Its methods may be coroutines; plain ones run in a thread
for each connection. What they raise leaves the episode unscored.
"""

import argparse
import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

Chat = dict[str, Any]
"""A message: `{"role": ..., "content": ...}`, and `name` for role tool."""


@dataclass(frozen=True)
class Task:
    """The opening of an episode."""

    messages: Sequence[Chat]
    tools: Sequence[Mapping[str, Any]] = ()
    """JSON schemas for the chat template."""


@dataclass(frozen=True)
class Observation:
    """The answer to a turn of the model."""

    messages: Sequence[Chat] = ()
    done: bool = False
    reward: float = 0.0
    """Of this turn; an episode earns the sum."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """`accuracy` from 0 to 1 is that of the episode; without it the sum of rewards, clipped."""


class Environment:
    """One episode."""

    roles: ClassVar[Sequence[str]] = ("tool",)
    """Roles of the messages that `step` answers with: tool, user."""
    capacity: ClassVar[int | None] = None
    """Episodes at a time in one server; without a limit when None."""
    idle_seconds: ClassVar[float] = 3600.0
    """An episode that nobody steps for longer is closed."""

    def reset(self, row: Mapping[str, Any], seed: int) -> Any:
        """Return the Task. It must depend on row and seed alone: all episodes of a group have the
        same opening."""
        raise NotImplementedError

    def step(self, completion: str) -> Any:
        """Return the Observation for what the model wrote in its turn."""
        raise NotImplementedError

    def close(self) -> Any:
        """Release what the episode holds."""


class ToolEnvironment(Environment):
    """Calls functions for `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, the form of
    Hermes and Qwen; a turn without calls is the answer."""

    tools: ClassVar[Sequence[Callable[..., Any]]] = ()
    """Functions with annotated parameters; the docstring is the description."""

    def score(self, completion: str) -> Any:
        """Return the reward of the answer, or an Observation."""
        raise NotImplementedError

    def schemas(self) -> list[dict[str, Any]]:
        """The schemas of the tools, for the Task."""
        return [tool_schema(tool) for tool in self.tools]

    def step(self, completion: str) -> Observation:
        calls = _CALL.findall(completion)
        if calls:
            return Observation([self._call(text) for text in calls])
        scored = self.score(completion)
        if isinstance(scored, Observation):
            return scored
        return Observation(done=True, reward=float(scored))

    def _call(self, text: str) -> Chat:
        """The answer to one call; an error of the call is text for the model."""
        name = "tool"
        try:
            call = json.loads(text)
            name = str(call["name"])
            tool = next((tool for tool in self.tools if tool.__name__ == name), None)
            if tool is None:
                raise ValueError(f"there is no tool {name}")
            content = str(tool(**call.get("arguments", {})))
        except Exception as error:
            content = f"error: {error}"
        return {"role": "tool", "name": name, "content": content}


_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array"}


def tool_schema(function: Callable[..., Any]) -> dict[str, Any]:
    """The JSON schema of a function with annotated parameters."""
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    properties = {p.name: {"type": _TYPES.get(p.annotation, "object")} for p in parameters}
    required = [p.name for p in parameters if p.default is p.empty]
    return {
        "type": "function",
        "function": {
            "name": function.__name__,
            "description": inspect.getdoc(function) or "",
            "parameters": {"type": "object", "properties": properties, "required": required},
        },
    }


class _RefusedError(Exception):
    """A call that is answered with an error of this status."""

    def __init__(self, status: int, text: str) -> None:
        self.status, self.text = status, text


class _Episodes:
    """The episodes of a server."""

    def __init__(self, kind: type[Environment]) -> None:
        self._kind = kind
        self._live: dict[str, tuple[Environment, float]] = {}
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def health(self) -> dict[str, Any]:
        roles, capacity = list(self._kind.roles), self._kind.capacity
        return {"roles": roles, "capacity": capacity, "episodes": len(self._live)}

    def reset(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self._close_idle()
        name, environment = uuid.uuid4().hex, self._kind()
        with self._lock:
            capacity = self._kind.capacity
            if capacity is not None and len(self._live) >= capacity:
                raise _RefusedError(503, f"{capacity} episodes are the capacity")
            self._live[name] = environment, time.monotonic()
        try:
            task: Task = self._result(environment.reset(body["row"], body["seed"]))
        except BaseException:
            self._end(name)
            raise
        return {"id": name, "messages": list(task.messages), "tools": list(task.tools)}

    def step(self, body: Mapping[str, Any]) -> dict[str, Any]:
        name = body["id"]
        with self._lock:
            if name not in self._live:
                raise _RefusedError(410, f"there is no episode {name}")
            environment = self._live[name][0]
            self._live[name] = environment, time.monotonic()
        seen: Observation = self._result(environment.step(body["completion"]))
        return {
            "messages": list(seen.messages),
            "done": seen.done,
            "reward": seen.reward,
            "metrics": dict(seen.metrics),
        }

    def close(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self._end(body["id"])
        return {}

    def _end(self, name: str) -> None:
        with self._lock:
            found = self._live.pop(name, None)
        if found is not None:
            self._result(found[0].close())

    def _close_idle(self) -> None:
        oldest = time.monotonic() - self._kind.idle_seconds
        for name in [name for name, (_, used) in list(self._live.items()) if used < oldest]:
            self._end(name)

    def _result(self, value: Any) -> Any:
        if not inspect.isawaitable(value):
            return value

        async def wait() -> Any:
            return await value

        return asyncio.run_coroutine_threadsafe(wait(), self._loop).result()


def _handler(episodes: _Episodes) -> type[BaseHTTPRequestHandler]:
    calls = {"/reset": episodes.reset, "/step": episodes.step, "/close": episodes.close}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        """Headers and body are two writes: the second would wait for an acknowledgement."""

        def do_GET(self) -> None:
            known = self.path.endswith("/health")
            self._write(200, episodes.health()) if known else self._write(404, {"error": "no path"})

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            call = next((call for path, call in calls.items() if self.path.endswith(path)), None)
            if call is None:
                return self._write(404, {"error": f"no path {self.path}"})
            try:
                status, body = 200, call(json.loads(raw))
            except _RefusedError as refused:
                status, body = refused.status, {"error": refused.text}
            except Exception as error:
                traceback.print_exc()
                status, body = 500, {"error": _described(error)}
            self._write(status, body)

        def log_message(self, *_: Any) -> None:
            """Nothing: the trainer counts what fails."""

        def _write(self, status: int, body: Mapping[str, Any]) -> None:
            raw = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

    return Handler


def _described(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, *_: Any) -> None:
        """Nothing: the other side has closed the connection."""


def load_class(name: str) -> type[Environment]:
    """The class `MODULE:CLASS`, of a file or an importable module; raises ValueError."""
    module, _, cls = name.rpartition(":")
    if not module:
        raise ValueError(f"{name}: must be FILE.py:CLASS or MODULE:CLASS")
    if module.endswith(".py"):
        path = Path(module).resolve()
        sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise ValueError(f"{module}: there is no such file")
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = loaded
        spec.loader.exec_module(loaded)
    else:
        loaded = importlib.import_module(module)
    found: type[Environment] | None = getattr(loaded, cls, None)
    # Not issubclass: the module may import another copy of this file.
    if found is None or not all(hasattr(found, m) for m in ("reset", "step", "close", "roles")):
        raise ValueError(f"{name}: must be a subclass of Environment")
    return found


def serve(kind: type[Environment], listener: socket.socket) -> None:
    """Serve the class at a listening socket until SIGTERM or Ctrl-C."""
    host, port = listener.getsockname()[:2]
    server = _Server((host, port), _handler(_Episodes(kind)), bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print(f"environment {kind.__name__} at http://{host}:{port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=1024)


def main() -> None:
    """`python sdk.py env.py:CLASS [--host HOST] [--port PORT]`"""
    parser = argparse.ArgumentParser(description="Serve an environment over HTTP.")
    parser.add_argument("environment", metavar="FILE.py:CLASS")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--check", action="store_true", help="load the class and exit")
    parser.add_argument("--fd", type=int, help="inherited listening socket; serve until stdin ends")
    arguments = parser.parse_args()
    kind = load_class(arguments.environment)
    if arguments.check:
        return
    if arguments.fd is None:
        serve(kind, listen(arguments.host, arguments.port))
    else:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
        serve(kind, socket.socket(fileno=arguments.fd))


def _end_with_stdin() -> None:
    """End this process with the one that started it."""
    while sys.stdin.buffer.read(1):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
