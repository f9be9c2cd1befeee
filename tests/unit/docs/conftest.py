"""docs/ is no package: its scripts import each other by bare names."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "docs"))
