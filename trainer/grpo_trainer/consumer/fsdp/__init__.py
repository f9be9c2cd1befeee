"""Training by torch FSDP2 and tensor parallelism, through transformers 5's distributed loading."""
