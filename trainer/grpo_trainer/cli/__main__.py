"""`python -m grpo_trainer.cli`: the program `grpo`."""

import sys

from .main import main

sys.exit(main())
