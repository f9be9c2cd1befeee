"""The algorithms as pure functions: masks, advantages, batches, log-probabilities, loss.

`masks`, `advantage`, `batching` and `totals` need numpy only; `logprobs` and `loss` need torch.
"""
