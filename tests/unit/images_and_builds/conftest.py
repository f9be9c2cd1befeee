"""The scripts in hack/images are no package: they import each other by bare names."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "hack" / "images"))
