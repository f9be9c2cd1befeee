"""Our requests in vLLM's terms, and its outputs in ours."""

from __future__ import annotations

from typing import Any

import numpy as np
from vllm import RequestOutput, SamplingParams
from vllm.logprobs import FlatLogprobs
from vllm.outputs import CompletionOutput
from vllm.sampling_params import RequestOutputKind

from grpo_trainer.messages import Completion, FinishReason, GenerationRequest, Rollout


def sampling_params(request: GenerationRequest, eos_ids: frozenset[int]) -> SamplingParams:
    """How vLLM is to answer a request, whatever defaults it has or the model brings."""
    sampling = request.sampling
    return SamplingParams(
        n=request.num_samples,
        # vLLM seeds sample i with seed + i: neighbouring seeds must not share samples.
        seed=int(np.random.SeedSequence(request.seed).generate_state(1, np.uint64)[0] >> 2),
        temperature=sampling.temperature,
        top_k=sampling.top_k or 0,
        top_p=sampling.top_p,
        max_tokens=sampling.max_new_tokens,
        stop=list(sampling.stop_strings),
        stop_token_ids=sorted(eos_ids.union(sampling.stop_token_ids)),
        include_stop_str_in_output=True,
        # Text is only needed on the way to look for stop strings in it.
        detokenize=bool(sampling.stop_strings),
        logprobs=0,  # of the sampled token, and of no others
        flat_logprobs=True,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def rollout(request: GenerationRequest, output: RequestOutput, tokenizer: Any) -> Rollout:
    """The answer to a request, from the last output for it."""
    assert output.finished
    samples = sorted(output.outputs, key=lambda sample: sample.index)
    assert [sample.index for sample in samples] == list(range(request.num_samples))
    # vLLM's own text ends with a stop string, even if the token that completed it does not.
    texts = tokenizer.batch_decode(
        [list(sample.token_ids) for sample in samples],
        skip_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )
    greedy = request.sampling.temperature == 0
    return Rollout(
        request.request_id,
        tuple(_completion(s, text, greedy) for s, text in zip(samples, texts, strict=True)),
    )


def _completion(sample: CompletionOutput, text: str, greedy: bool) -> Completion:
    tokens = np.array(sample.token_ids, dtype=np.int32)
    scored, spans = sample.logprobs, sample.weight_versions
    assert isinstance(scored, FlatLogprobs) and spans is not None
    # The sampled token comes first in each position.
    logprobs = np.array(scored.logprobs, dtype=np.float32)[scored.start_indices]
    assert [scored.token_ids[i] for i in scored.start_indices] == list(sample.token_ids)
    versions = np.repeat([int(s.version) for s in spans], [s.end - s.start for s in spans])
    assert len(versions) == len(tokens)
    return Completion(
        token_ids=tokens,
        # A greedy choice is certain; vLLM reports its probability at temperature 1.
        logprobs=np.zeros_like(logprobs) if greedy else logprobs,
        versions=versions.astype(np.int32),
        text=text,
        finish_reason=_REASONS[sample.finish_reason],
    )


_REASONS = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "abort": FinishReason.ABORT,
}
