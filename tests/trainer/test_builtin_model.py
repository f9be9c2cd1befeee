"""The built-in model.

Aspects: an ordinary directory that `from_pretrained` reads, its tokenizer and template, plain
sampling by default, equal recipes give equal weights, caching, many callers at once, a build that
fails or misses its accuracy; and of the real recipe: the format is learnt, the carry is not.

The real models are built once per machine and shared by all tests through the default cache.
"""

import json
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from grpo_trainer.builtin import (
    CompletionFormat,
    Recipe,
    Split,
    default_cache,
    ensure_model,
    ensure_tiny_model,
    resolve_model_path,
)
from grpo_trainer.builtin.addition import question, sums
from grpo_trainer.builtin.recipe import tiny_recipe
from grpo_trainer.builtin.teacher import completion
from grpo_trainer.builtin.warmup import exact_accuracy, held_out_dialogues
from grpo_trainer.spec import RewardType

QUICK = Recipe(steps=2, extra_rounds=0, min_accuracy=0.0, answers_per_sum=1)


@pytest.fixture(scope="module")
def quick(tmp_path_factory) -> Path:
    return ensure_model(tmp_path_factory.mktemp("models"), QUICK)


def weights(directory: Path) -> dict[str, torch.Tensor]:
    return AutoModelForCausalLM.from_pretrained(directory).state_dict()


def real_model(completion_format: CompletionFormat):
    directory = ensure_tiny_model(default_cache(), completion_format=completion_format)
    model = AutoModelForCausalLM.from_pretrained(directory).eval()
    return model, AutoTokenizer.from_pretrained(directory)


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_it_is_a_small_qwen2_in_float32(quick):
    model = AutoModelForCausalLM.from_pretrained(quick)
    assert model.config.model_type == "qwen2"
    assert model.config.torch_dtype == torch.float32
    assert sum(parameter.numel() for parameter in model.parameters()) == 411_008


def test_another_user_may_read_every_file(quick):
    assert stat.S_IMODE(quick.stat().st_mode) == 0o755
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in quick.iterdir()}
    assert modes["model.safetensors"] == 0o644
    assert set(modes.values()) == {0o644}


def test_sampling_is_plain_by_default(quick):
    config = GenerationConfig.from_pretrained(quick)
    assert (config.do_sample, config.temperature, config.top_k, config.top_p) == (True, 1, 0, 1)
    assert (config.eos_token_id, config.pad_token_id) == (1, 0)


def test_the_template_marks_the_turns_and_leaves_system_messages_out(quick):
    tokenizer = AutoTokenizer.from_pretrained(quick)
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "12+34="},
        {"role": "assistant", "content": "\\boxed{46}"},
    ]
    text = tokenizer.apply_chat_template(turns, tokenize=False)
    assert text == "<user>12+34=<assistant>\\boxed{46}<eos>"
    asked = tokenizer.apply_chat_template(turns[:2], add_generation_prompt=True)
    assert tokenizer.convert_ids_to_tokens(asked) == ["<user>", *"12+34=", "<assistant>"]


def test_the_saved_tokenizer_carries_no_padding_over_from_the_warm_up(quick):
    assert json.loads((quick / "tokenizer.json").read_text())["padding"] is None


@pytest.mark.parametrize("completion_format", CompletionFormat)
def test_a_completion_survives_the_tokenizer_tags_included(quick, completion_format):
    tokenizer = AutoTokenizer.from_pretrained(quick)
    text = completion(12, 34, 46, completion_format)
    ids = tokenizer(text + tokenizer.eos_token)["input_ids"]
    assert ids[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.unk_token_id not in ids


def test_all_printable_text_and_newlines_survive_the_tokenizer(quick):
    tokenizer = AutoTokenizer.from_pretrained(quick)
    text = "".join(map(chr, range(32, 127))) + " \n\n a  . b"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_what_the_tokenizer_gives_is_what_generate_takes(quick):
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(quick),
        AutoTokenizer.from_pretrained(quick),
    )
    batch = tokenizer(["<user>1+1=", "<user>12+34="], padding=True, return_tensors="pt")
    assert batch["input_ids"][0].tolist()[:2] == [tokenizer.pad_token_id] * 2
    assert model.generate(**batch, max_new_tokens=2).shape == (2, 9)


def test_equal_recipes_give_equal_weights_and_other_seeds_others(quick, tmp_path):
    assert equal(weights(quick), weights(ensure_model(tmp_path, QUICK)))
    other = ensure_model(tmp_path, replace(QUICK, seed=1))
    assert not equal(weights(quick), weights(other))


def test_the_random_state_of_the_caller_does_not_change(tmp_path):
    before = torch.get_rng_state()
    ensure_model(tmp_path, QUICK)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_is_built_once_and_then_cached(tmp_path):
    reports: list[tuple[int, int, float]] = []
    made = ensure_model(tmp_path, QUICK, lambda *report: reports.append(report))
    found = ensure_model(tmp_path, QUICK, lambda *report: reports.append(report))
    assert made == found
    assert [report[:2] for report in reports] == [(2, 2)]


def test_one_of_several_callers_builds_the_model_for_all(tmp_path):
    makers: list[int] = []
    start = threading.Barrier(3)

    def call() -> Path:
        start.wait(timeout=60)
        return ensure_model(tmp_path, QUICK, lambda *_: makers.append(threading.get_ident()))

    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(call) for _ in range(3)]
        directories = {call.result(timeout=120) for call in calls}
    assert len(directories) == 1
    assert len(makers) == 1


def test_an_interrupted_build_leaves_no_model_and_the_next_build_succeeds(tmp_path):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_model(tmp_path, QUICK, interrupt)
    assert not (tmp_path / QUICK.name).exists()
    assert (ensure_model(tmp_path, QUICK) / "model.safetensors").exists()
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [QUICK.name]


def test_a_warm_up_below_its_accuracy_continues_for_some_rounds_and_then_fails(tmp_path):
    steps: list[tuple[int, int]] = []
    recipe = replace(QUICK, extra_steps=3, extra_rounds=2, min_accuracy=0.9)
    with pytest.raises(RuntimeError, match=r"held-out accuracy of 0\.0\d\d, below 0\.9"):
        ensure_model(tmp_path, recipe, lambda step, total, _: steps.append((step, total)))
    assert steps == [(2, 2), (5, 5), (8, 8)]
    assert not (tmp_path / recipe.name).exists()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("completion_format", CompletionFormat)
def test_the_real_model_reaches_the_accuracy_of_its_recipe(completion_format):
    model, tokenizer = real_model(completion_format)
    recipe = tiny_recipe(completion_format, seed=0)
    assert exact_accuracy(model, held_out_dialogues(tokenizer, recipe)) >= recipe.min_accuracy


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "completion_format", [f for f in CompletionFormat if f is not CompletionFormat.TOOL_CALL]
)
def test_the_real_model_has_learnt_the_format_and_every_sum_without_carry(completion_format):
    model, tokenizer = real_model(completion_format)
    pairs = sums(Split.HELD_OUT)
    prompts = tokenizer.apply_chat_template(
        [[{"role": "user", "content": question(a, b)}] for a, b in pairs],
        add_generation_prompt=True,
        return_tensors="pt",
    )
    mask = torch.ones_like(prompts)
    greedy = {"do_sample": False, "temperature": None, "top_k": None, "top_p": None}
    ids = model.generate(prompts, attention_mask=mask, max_new_tokens=20, **greedy)
    texts = tokenizer.batch_decode(ids[:, prompts.shape[1] :], skip_special_tokens=True)
    right: dict[bool, list[bool]] = {True: [], False: []}
    for text, (a, b) in zip(texts, pairs, strict=True):
        right[a % 10 + b % 10 >= 10].append(text == completion(a, b, a + b, completion_format))
    assert sum(right[True]) <= 0.1 * len(right[True])
    assert sum(right[False]) >= 0.9 * len(right[False])


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("reward", "completion_format"),
    [
        (RewardType.THINK_ANSWER_TAGS, CompletionFormat.THINK_ANSWER_TAGS),
        (RewardType.BOXED, CompletionFormat.BOXED),
        (RewardType.CUSTOM, CompletionFormat.BOXED),
    ],
)
def test_a_run_uses_the_model_whose_completions_its_reward_reads(reward, completion_format):
    path = resolve_model_path("builtin://tiny", reward, default_cache())
    assert path == str(default_cache() / tiny_recipe(completion_format, seed=0).name)
    assert (Path(path) / "model.safetensors").is_file()
