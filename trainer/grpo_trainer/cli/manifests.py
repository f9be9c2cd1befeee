"""Reading manifests from files: YAML or JSON, one or several, with every fault found at once."""

import json
import re
import sys
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..errors import InvalidInputError, invalid, required
from ..spec import API_VERSION, KIND, GRPOJob, InvalidManifestError, parse_manifest

STANDARD_INPUT = "-"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_FLOAT = "tag:yaml.org,2002:float"
_MERGE = "tag:yaml.org,2002:merge"


@dataclass(frozen=True, slots=True)
class Document:
    """One manifest as read, not yet validated."""

    source: str
    """For messages: the file, and the document's number where it holds several."""
    data: Any

    def parse(self, flags: Mapping[str, str] | None = None) -> GRPOJob:
        """Raises InvalidInputError with every fault, the source before each.

        `flags` names the flag that set a field, which then stands behind the field's faults.
        """
        if isinstance(self.data, dict) and self.data.get("kind", KIND) != KIND:
            kind = self.data["kind"]
            raise InvalidInputError(f"{self.source}: {invalid('kind', kind, f'must be {KIND}')}")
        try:
            return parse_manifest(self.data)
        except InvalidManifestError as error:
            set_by = {path: f" (set by {name})" for path, name in (flags or {}).items()}
            faults = [f"{self.source}: {f}{set_by.get(f.path, '')}" for f in error.faults]
            raise InvalidInputError(faults) from error


def read_documents(path: str) -> list[Document]:
    """All manifests of a file, `-` for standard input; `.json` is JSON, all else YAML.

    Raises InvalidInputError for a file that cannot be read, is not well formed or holds nothing.
    """
    source = "standard input" if path == STANDARD_INPUT else path
    try:
        content = sys.stdin.buffer.read() if path == STANDARD_INPUT else Path(path).read_bytes()
    except OSError as error:
        raise InvalidInputError(f"{source}: {error.strerror}") from error
    load = _load_json if path.endswith(".json") else _load_yaml
    documents = [data for data in load(source, content) if data is not None]
    if not documents:
        raise InvalidInputError(required(source, f"a {KIND} of {API_VERSION}"))
    if len(documents) == 1:
        return [Document(source, documents[0])]
    return [Document(f"{source}, document {n}", data) for n, data in enumerate(documents, 1)]


def read_document(path: str) -> Document:
    """The only manifest of a file; raises as `read_documents`, and for a second one."""
    documents = read_documents(path)
    if len(documents) > 1:
        raise InvalidInputError(f"{path}: contains {len(documents)} manifests, must contain one")
    return documents[0]


class Loader(yaml.SafeLoader):
    """YAML as the API server reads it: no date type, `1e-6` a number, a key given twice a fault."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                problem = f"the key {key!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key if isinstance(key, Hashable) else None)
        return super().construct_mapping(node, deep)


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver(
    _FLOAT, re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _load_yaml(source: str, content: bytes) -> list[Any]:
    try:
        return list(yaml.load_all(content, Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise InvalidInputError(f"{source}: {place}{error.problem or error.context}") from error
    except yaml.reader.ReaderError as error:
        place = f"position {error.position}"
        raise InvalidInputError(f"{source}: {place}: {error.reason}, in UTF-8 text") from error
    except RecursionError as error:
        raise InvalidInputError(f"{source}: nested too deeply for a manifest") from error


def _load_json(source: str, content: bytes) -> list[Any]:
    try:
        return [json.loads(content)]
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidInputError(f"{source}: {place}: {error.msg}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise InvalidInputError(f"{source}: not JSON in UTF-8: {error}") from error
