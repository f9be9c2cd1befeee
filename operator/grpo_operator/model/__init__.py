"""Observations, decisions, names and conditions: frozen records without effects."""
