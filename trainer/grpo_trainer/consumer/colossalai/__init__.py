"""ColossalAI's Booster as a training backend: DDP, ZeRO, tensor and pipeline parallelism."""
