"""`python -m grpo_operator.crd > crds/grpojobs.yaml`."""

import sys

from . import render

sys.stdout.write(render())
