"""The files of the chart that are not templates.

Aspects: the definition; the version; the schema of the values against the values; their
documentation.

`UPDATE_SNAPSHOTS=1 pytest` copies the definition and rewrites the documentation's table.
"""

import copy
import tomllib

import jsonschema
import pytest
import yaml
from chart_values import table, values

from support.helm_chart import CHART, ROOT, committed

VALUES = (CHART / "values.yaml").read_text()
SCHEMA = yaml.safe_load((CHART / "values.schema.json").read_text())
PAGE = ROOT / "docs" / "install.md"
BEGIN, END = "<!-- the values, from values.yaml -->\n", "<!-- end -->"


def test_the_charts_definition_is_the_generated_one():
    generated = (ROOT / "crds" / "grpojobs.yaml").read_text()
    same = generated == committed(CHART / "files" / "grpojobs.yaml", generated)
    assert same, "cp crds/grpojobs.yaml helm/grpo-operator/files/"


def test_the_chart_has_the_version_of_the_programs_it_installs():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == version


def test_the_defaults_are_valid():
    jsonschema.validate(yaml.safe_load(VALUES), SCHEMA)


def resolved(schema):
    """A schema of the file, with a reference followed."""
    return SCHEMA["definitions"][schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema


def sections(schema, path=()):
    """The path of every mapping whose keys are known."""
    properties = resolved(schema).get("properties", {})
    if properties:
        yield path
    for key, below in properties.items():
        yield from sections(below, (*path, key))


@pytest.mark.parametrize(
    "path", list(sections(SCHEMA)), ids=lambda path: ".".join(path) or "values"
)
def test_a_misspelt_value_is_refused_in_every_section(path):
    faulty = copy.deepcopy(yaml.safe_load(VALUES))
    section = faulty
    for key in path:
        section = section.setdefault(key, {})
    section["misspelt"] = 1
    with pytest.raises(jsonschema.ValidationError, match="'misspelt' was unexpected"):
        jsonschema.validate(faulty, SCHEMA)


def test_the_schema_has_exactly_the_values():
    assert SCHEMA["properties"].keys() == yaml.safe_load(VALUES).keys()


def test_every_value_has_a_comment():
    assert [value.path for value in values(VALUES) if not value.comment] == []


def test_the_documentation_lists_every_value():
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    current = f"{before}{BEGIN}{table(VALUES)}{END}{after}"
    assert committed(PAGE, current) == current
