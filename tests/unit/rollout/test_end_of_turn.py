"""The end of an assistant's turn, by the forms of chat templates of public model families."""

import pytest
from transformers import PreTrainedTokenizerFast

from grpo_trainer.rollout.end_of_turn import end_of_turn_ids
from unit.rollout.tiny_models import TOKENIZER

TURNS = "{%% for m in messages %%}%s{%% endfor %%}"
IM = TURNS % "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
MODEL_ROLE = "{{ 'model' if m.role == 'assistant' else m.role }}"
BRANCHES = "{%% if m.role == 'assistant' %%}%s{%% else %%}%s{%% endif %%}"
FAMILIES = {
    "Qwen2": (IM, "<|im_end|>"),
    "SmolLM": ("{{ bos_token }}" + IM, "<|im_end|>"),
    "Llama 3": (TURNS % "<|header|>{{ m.role }}\n\n{{ m.content | trim }}<|eot_id|>", "<|eot_id|>"),
    "Gemma": (
        TURNS % f"<start_of_turn>{MODEL_ROLE}\n{{{{ m.content }}}}<end_of_turn>\n",
        "<end_of_turn>",
    ),
    "Phi-3": (
        TURNS % "<|{{ m.role }}|>\n{{ m.content }}<|end|>\n" + "{{ eos_token }}",
        "<|end|>",
    ),
    "Mistral": (
        TURNS % (BRANCHES % (" {{ m.content }}{{ eos_token }}", "[INST] {{ m.content }} [/INST]")),
        "<eos>",
    ),
    "Llama 2": (
        TURNS % (BRANCHES % (" {{ m.content }} {{ eos_token }}", "[INST] {{ m.content }} [/INST]")),
        "<eos>",
    ),
    "DeepSeek": (
        TURNS % (BRANCHES % ("A: {{ m.content }}<end_of_sentence>", "U: {{ m.content }}\n\n")),
        "<end_of_sentence>",
    ),
    "OLMo 2": (
        TURNS
        % (
            BRANCHES
            % ("<|assistant|>\n{{ m.content }}{{ eos_token }}", "<|user|>\n{{ m.content }}\n")
        ),
        "<eos>",
    ),
    "Granite": (
        TURNS % "<|role_start|>{{ m.role }}<|role_end|>{{ m.content }}<|end_of_text|>\n",
        "<|end_of_text|>",
    ),
}


def tokenizer_with(template, end):
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=TOKENIZER.backend_tokenizer, eos_token="<eos>", bos_token="<bos>"
    )
    if end not in tokenizer.get_vocab():
        tokenizer.add_special_tokens({"additional_special_tokens": [end]})
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize("family", FAMILIES)
def test_the_token_that_ends_a_turn_is_found(family):
    template, end = FAMILIES[family]
    tokenizer = tokenizer_with(template, end)
    assert end_of_turn_ids(tokenizer) == {tokenizer.convert_tokens_to_ids(end)}


@pytest.mark.parametrize(
    "template",
    [
        None,
        TURNS % "{{ m.role }}: {{ m.content }}\n",
        "{% for m in messages %}{{ raise_exception('no assistant') }}{% endfor %}",
    ],
    ids=["no template", "no token", "a refusal"],
)
def test_a_template_without_such_a_token_adds_none(template):
    assert end_of_turn_ids(tokenizer_with(template, "<|im_end|>")) == frozenset()
