"""The built-in data sets by path."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from .addition import Split, addition_rows
from .names import SCHEME
from .products import product_rows

DATA_SETS: Mapping[str, Callable[[], list[dict[str, Any]]]] = {
    f"{SCHEME}addition": partial(addition_rows, Split.TRAIN),
    f"{SCHEME}addition-held-out": partial(addition_rows, Split.HELD_OUT),
    f"{SCHEME}products": partial(product_rows, Split.TRAIN),
    f"{SCHEME}products-held-out": partial(product_rows, Split.HELD_OUT),
}
