"""What the operator knows of a job: frozen records, names and conditions, without effects."""
