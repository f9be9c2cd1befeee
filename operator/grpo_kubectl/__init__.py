"""`kubectl grpo`: GRPOJobs from the command line."""
