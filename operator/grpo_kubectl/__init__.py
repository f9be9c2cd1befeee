"""`kubectl grpo`: a kubectl plugin that inspects and controls GRPOJobs."""
