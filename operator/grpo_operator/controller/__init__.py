"""The reconcile loop: watches, queue, observe, decide, act, and what keeps one replica active."""
