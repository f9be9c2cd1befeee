"""Templates: places are names, braces are doubled, everything else is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_trainer.spec import InvalidManifestError, parse_manifest
from grpo_trainer.spec.templates import fill, places

names = st.from_regex(r"[a-z_]{1,5}", fullmatch=True)


def test_places_are_filled_with_values_as_text():
    assert fill("{question}\nAnswer in \\boxed{{}}, {n}.", {"question": "1+1?", "n": 3}) == (
        "1+1?\nAnswer in \\boxed{}, 3."
    )


@given(st.text(), st.dictionaries(names, st.text(), max_size=3))
def test_a_text_with_doubled_braces_is_itself_and_values_are_never_read_as_templates(text, values):
    escaped = text.replace("{", "{{").replace("}", "}}")
    template = escaped + "".join(f"|{{{name}}}" for name in values)
    assert places(template) == values.keys()
    assert fill(template, values) == text + "".join(f"|{value}" for value in values.values())


@pytest.mark.parametrize("text", ["{}", "{0}", "{a.b}", "{a[0]}", "{a!r}", "{a:>9}", "{a b}", "{"])
def test_anything_but_a_name_is_refused(text):
    with pytest.raises(ValueError, match=r"write \{\{ and \}\} for braces"):
        places(text)


def test_a_wrong_template_and_a_wrong_pattern_are_named_in_a_manifest():
    judge = {"url": "http://a", "model": "m", "prompt": "{completion.x}", "pattern": "("}
    with pytest.raises(InvalidManifestError) as caught:
        parse_manifest(
            {
                "apiVersion": "grpo-operator.io/v1alpha1",
                "kind": "GRPOJob",
                "metadata": {"name": "a"},
                "spec": {"reward": {"type": "judge", "judge": judge}},
            }
        )
    messages = [str(fault) for fault in caught.value.faults]
    assert messages[0].startswith(
        'spec.reward.judge.prompt: Invalid value: "{completion.x}": must be a template: '
        "{completion.x} is not a name"
    )
    assert messages[1].startswith(
        'spec.reward.judge.pattern: Invalid value: "(": must be a regular expression: '
    )
