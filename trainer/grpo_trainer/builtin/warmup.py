"""The supervised warm-up that builds the tiny model: about a minute on one CPU core."""

import json
import random
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from .addition import Split, question, sums
from .products import called, product
from .products import lessons as product_lessons
from .recipe import CompletionFormat, OnProgress, Recipe
from .teacher import careless_answer, completion
from .tokenizer import MAX_POSITIONS, VOCAB_SIZE, build_tokenizer

_STEPS_PER_REPORT = 50


@dataclass(frozen=True, slots=True, eq=False)
class Dialogues:
    """Prompts with their completions. All prompts have one length; completions are padded on the
    right."""

    ids: Tensor
    """[N, P + R]"""
    completion_mask: Tensor
    """[N, R], 1.0 up to the end-of-sequence token, but 0.0 for observations of a tool."""

    def __getitem__(self, index: Tensor) -> "Dialogues":
        return Dialogues(self.ids[index], self.completion_mask[index])


def write_model(directory: Path, recipe: Recipe, on_progress: OnProgress) -> None:
    """Train a model and save it with its tokenizer and recipe, in the form of `from_pretrained`.

    Raises RuntimeError if the accuracy is below the recipe's after all rounds.
    """
    tokenizer = build_tokenizer()
    _save_tokenizer(tokenizer, directory)  # before its use, which changes its padding
    model = build_model(recipe, tokenizer)
    accuracy = _train(model, tokenizer, recipe, on_progress)
    if accuracy < recipe.min_accuracy:
        raise RuntimeError(
            f"the warm-up of {recipe.name} ended at a held-out accuracy of {accuracy:.3f}, "
            f"below {recipe.min_accuracy}"
        )
    model.save_pretrained(directory)
    made = {**asdict(recipe), "held_out_accuracy": accuracy}
    (directory / "recipe.json").write_text(json.dumps(made, indent=2) + "\n")


def _save_tokenizer(tokenizer: PreTrainedTokenizerFast, directory: Path) -> None:
    """Save it so that both transformers 4 and 5 can read it, which share the cache.

    Version 5 writes names that version 4 does not have, and reads those of version 4.
    """
    tokenizer.save_pretrained(directory)
    file = directory / "tokenizer_config.json"
    config = json.loads(file.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    special = config.pop("extra_special_tokens", None)
    if isinstance(special, list):
        config["additional_special_tokens"] = special
    file.write_text(json.dumps(config, indent=2) + "\n")


def build_model(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """The untrained model in float32; the caller's random state does not change."""
    config = Qwen2Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.intermediate_size,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=False,
        sliding_window=None,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        torch_dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model = Qwen2ForCausalLM(config)
    # Plain sampling: the default of transformers keeps only the 50 likeliest of 128 tokens.
    model.generation_config.update(do_sample=True, temperature=1.0, top_k=0, top_p=1.0)
    return model


def exact_accuracy(model: Qwen2ForCausalLM, dialogues: Dialogues) -> float:
    """Mean probability of the completions: the expected accuracy of sampling at temperature 1."""
    with torch.no_grad():
        return float(_completion_logprobs(model, dialogues).sum(1).exp().mean())


def held_out_dialogues(tokenizer: PreTrainedTokenizerFast, recipe: Recipe) -> Dialogues:
    """The held-out questions with their right completions."""
    pairs, form = sums(Split.HELD_OUT), recipe.completion_format
    if form is CompletionFormat.TOOL_CALL:
        return _encode(tokenizer, ((product(a, b), called(a, b)) for a, b in pairs))
    end = tokenizer.eos_token
    return _encode(
        tokenizer, ((question(a, b), completion(a, b, a + b, form) + end) for a, b in pairs)
    )


def _train(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    recipe: Recipe,
    on_progress: OnProgress,
) -> float:
    taught = _encode(tokenizer, _lessons(recipe, tokenizer.eos_token))
    held_out = held_out_dialogues(tokenizer, recipe)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=recipe.learning_rate,
        betas=(0.9, 0.98),
        weight_decay=recipe.weight_decay,
    )
    generator = torch.Generator().manual_seed(recipe.seed)
    done = 0
    for steps in (recipe.steps, *[recipe.extra_steps] * recipe.extra_rounds):
        for step in range(1, steps + 1):
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate * _schedule(step, steps, recipe)
            batch = torch.randint(len(taught.ids), (recipe.batch_size,), generator=generator)
            _step(model, optimizer, taught[batch])
            if step % _STEPS_PER_REPORT == 0 or step == steps:
                accuracy = exact_accuracy(model, held_out)
                on_progress(done + step, done + steps, accuracy)
        done += steps
        if accuracy >= recipe.min_accuracy:
            break
    return accuracy


def _schedule(step: int, steps: int, recipe: Recipe) -> float:
    """Learning-rate factor: linear warm-up, constant, then linear to 0 from half of the steps."""
    return min(1.0, step / recipe.learning_rate_warmup_steps, 2 * (1 - (step - 1) / steps))


def _step(model: Qwen2ForCausalLM, optimizer: torch.optim.Optimizer, batch: Dialogues) -> None:
    loss = -_completion_logprobs(model, batch).sum() / batch.completion_mask.sum()
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()


def _completion_logprobs(model: Qwen2ForCausalLM, dialogues: Dialogues) -> Tensor:
    """[N, R] log-probability of each completion token, 0 where padded.

    Padding follows everything else, so that causal attention never reads it: no mask is needed.
    """
    length = dialogues.completion_mask.shape[1]
    logits = model(dialogues.ids, use_cache=False, logits_to_keep=length + 1).logits[:, :-1]
    loss = cross_entropy(
        logits.flatten(0, 1), dialogues.ids[:, -length:].flatten(), reduction="none"
    )
    return -loss.view_as(dialogues.completion_mask) * dialogues.completion_mask


def _lessons(recipe: Recipe, end: str) -> Iterable[tuple[str, str]]:
    """Questions of the training split with completions of the teacher."""
    rng, pairs = random.Random(recipe.seed), sums(Split.TRAIN)
    if recipe.completion_format is CompletionFormat.TOOL_CALL:
        yield from product_lessons(rng, recipe.answers_per_sum)
        return
    for _ in range(recipe.answers_per_sum):
        for a, b in pairs:
            answer = careless_answer(a, b, rng, forget_carry=recipe.forget_carry, slip=recipe.slip)
            yield question(a, b), completion(a, b, answer, recipe.completion_format) + end


def _encode(tokenizer: PreTrainedTokenizerFast, answered: Iterable[tuple[str, str]]) -> Dialogues:
    """(question, all behind it) in the chat template."""
    questions, answers = zip(*answered, strict=True)
    prompts = {
        asked: tokenizer.apply_chat_template(
            [{"role": "user", "content": asked}],
            add_generation_prompt=True,
            return_dict=False,
        )
        for asked in set(questions)
    }
    completions = tokenizer(list(answers), padding=True, padding_side="right", return_tensors="pt")
    ids = [torch.tensor([prompts[asked] for asked in questions]), completions["input_ids"]]
    mask = completions["attention_mask"] * ~_observed(tokenizer, completions["input_ids"])
    return Dialogues(torch.cat(ids, dim=1), mask.float())


def _observed(tokenizer: PreTrainedTokenizerFast, ids: Tensor) -> Tensor:
    """[N, R] bool: from the tool's turn to the opening of the assistant's next one."""
    begins = (ids == tokenizer.convert_tokens_to_ids("<tool>")).cumsum(1)
    ends = ids == tokenizer.convert_tokens_to_ids("<assistant>")
    observed: Tensor = (begins > ends.cumsum(1)) | ends
    return observed
