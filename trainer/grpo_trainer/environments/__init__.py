"""Environments: programs behind HTTP that answer the model over several turns and score it.

`sdk.py` is the server, one file of the standard library; `client.py` calls it, `episode.py` plays
an episode over a rollout engine, `conversation.py` encodes what the environment adds.
"""
