"""Weights over torch.distributed: one sender for each pipeline stage, all producers as receivers.

`plan` is plain values, which cross between environments; `group` needs torch.
"""
