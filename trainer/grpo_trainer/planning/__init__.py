"""The memory that a run needs, computed from the spec and the model's `config.json` alone.

`architecture` counts parameters; `consumers`, `producers` and `volume` compute bytes; `forecast`
puts them together and `advice` finds the fields to change. All of it is pure and needs no torch.
"""

from .advice import advice
from .architecture import Architecture, read_architecture
from .forecast import Forecast, forecast, generation_layout
from .page import page
from .producers import concurrent_sequences

__all__ = [
    "Architecture",
    "Forecast",
    "advice",
    "concurrent_sequences",
    "forecast",
    "generation_layout",
    "page",
    "read_architecture",
]
