"""The trainer: GRPO and DAPO runs described by one spec, on a laptop or in a cluster."""
