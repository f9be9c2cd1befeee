"""Stop strings and stop tokens."""

import pytest

from grpo_trainer.driver.stops import Stops, find_stops
from grpo_trainer.errors import InvalidInputError


class Tokenizer:
    all_special_tokens = ("<eos>", "<|im_end|>", "<beyond>")
    all_special_ids = (0, 7, 100)


def test_texts_and_tokens_stay_what_they_are():
    assert find_stops(("</answer>",), (9, 3), Tokenizer(), 20) == Stops(("</answer>",), (3, 9))


def test_a_stop_string_that_is_a_special_token_becomes_that_token():
    assert find_stops(("x", "<|im_end|>"), (3,), Tokenizer(), 20) == Stops(("x",), (3, 7))


def test_a_special_token_that_the_model_cannot_generate_stays_a_text():
    assert find_stops(("<beyond>",), (), Tokenizer(), 20) == Stops(("<beyond>",), ())


def test_a_token_beyond_the_vocabulary_is_refused():
    with pytest.raises(InvalidInputError) as error:
        find_stops((), (3, 20), Tokenizer(), 20)
    assert str(error.value) == (
        "spec.sampling.stopTokenIds[1]: Invalid value: 20: must be less than 20, the entries of "
        "the model's vocabulary"
    )
