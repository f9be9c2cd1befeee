"""The tiny model's tokenizer: one token per printable character, and one per tag of the rewards."""

from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

VOCAB_SIZE = 128
MAX_POSITIONS = 256

_CONTROL = ("<pad>", "<eos>", "<unk>", "<user>", "<assistant>")
# Tags are ordinary tokens: decoding removes special ones from the text that rewards read.
_TAGS = ("\\boxed{", "<think>", "</think>", "<answer>", "</answer>")
_CHARACTERS = (*(chr(code) for code in range(ord(" "), ord("~") + 1)), "\n")
_TOOL_CONTROL = "<tool>"
_TOOL_TAGS = ("<tool_call>", "</tool_call>")

# System messages are left out: the warm-up has none, so they would only disturb the model.
_CHAT_TEMPLATE = """\
{%- for message in messages -%}
{%- if message.role == 'user' -%}{{ '<user>' + message.content }}
{%- elif message.role == 'assistant' -%}{{ '<assistant>' + message.content + '<eos>' }}
{%- elif message.role == 'tool' -%}{{ '<tool>' + message.content }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<assistant>' }}{%- endif -%}"""


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A fast tokenizer of 128 tokens with a chat template: `<user>12+34=<assistant>`."""
    # Those of tools last: the ids of the others are older.
    tokens = [*_CONTROL, *_TAGS, *_CHARACTERS, _TOOL_CONTROL, *_TOOL_TAGS]
    tokens += [f"<unused{i}>" for i in range(len(tokens), VOCAB_SIZE)]
    backend = Tokenizer(
        models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[], unk_token="<unk>")
    )
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens([*_CONTROL, _TOOL_CONTROL])
    tags = (*_TAGS, *_TOOL_TAGS)
    backend.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in tags])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        additional_special_tokens=["<user>", "<assistant>", _TOOL_CONTROL],
        # Without token_type_ids, which `generate` refuses.
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=MAX_POSITIONS,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        chat_template=_CHAT_TEMPLATE,
    )
