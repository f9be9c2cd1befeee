"""Producers of rollouts: an engine that answers prompts, and the Ray actor around it.

`engine` and `producer` import neither torch nor transformers by themselves, so that the driver and
an environment with another engine can import them.
"""
