"""A small byte-level tokenizer with control tokens, and chat templates of several kinds."""

from functools import cache

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from grpo_trainer.environments.conversation import Conversation

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ORDINARY = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>"]

CHATML = """\
{%- if tools %}{{ '<|im_start|>system\n' }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}\
{{ '<|im_end|>\n' }}{% endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}{{ '<|im_start|>user\n<tool_response>\n' + m.content + '<|im_end|>\n' }}
{%- else %}{{ '<|im_start|>' + m.role + '\n' + m.content }}
{%- for call in m.tool_calls or [] %}{{ '<tool_call>' + (call.function | tojson) + '</tool_call>' }}
{%- endfor %}{{ '<|im_end|>\n' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
"""As Qwen2.5: earlier turns are written as they are."""

THINKING = CHATML.replace(
    "+ m.content }}",
    "+ (('<think>' + m.reasoning_content) if m.reasoning_content and loop.last else '')"
    " + m.content }}",
    1,
).replace("'<|im_start|>assistant\n' }}", "'<|im_start|>assistant\n<think>\n' }}")
"""As Qwen3: earlier chains of thought are left out, and the generation prompt opens one."""

TEXT_ARGUMENTS = CHATML.replace("(call.function | tojson)", "call.function.arguments")
"""As DeepSeek-V3: arguments of a call are text."""

NO_TOOLS = CHATML.replace(
    "{%- for m in messages %}",
    "{%- for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}",
)
DROPS_TOOLS = CHATML.replace("'<|im_start|>user\n<tool_response>\n' + m.content +", "'<tool>' +")
NO_END = CHATML.replace("<|im_end|>", "")


@cache
def tokenizer(template: str = CHATML) -> PreTrainedTokenizerFast:
    text = [CHATML, THINKING, "the quick brown fox jumps over 12 lazy dogs = 13, -4 * 5 + 6"]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=SPECIAL,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    backend.train_from_iterator(text, trainer)
    backend.add_tokens([AddedToken(t, normalized=False, special=False) for t in ORDINARY])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        clean_up_tokenization_spaces=False,
        chat_template=template,
    )


def conversation(template: str = CHATML) -> Conversation:
    of = tokenizer(template)
    return Conversation(of, frozenset({of.eos_token_id}))
