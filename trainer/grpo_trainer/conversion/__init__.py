"""`grpo data`: files of other projects as data sets. Imports no torch."""

from .lengths import Lengths, measure
from .read import Columns, read_table
from .rows import AnswerForm, Layout, Table, convert
from .split import split

__all__ = [
    "AnswerForm",
    "Columns",
    "Layout",
    "Lengths",
    "Table",
    "convert",
    "measure",
    "read_table",
    "split",
]
