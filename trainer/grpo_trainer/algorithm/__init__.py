"""What GRPO and DAPO compute, as pure functions: log-probabilities, advantages, batches, loss.

`advantage`, `batching` and `totals` need numpy only; `logprobs` and `loss` need torch.
"""
