"""Training processes: one Ray actor each, over ColossalAI's Booster."""
