"""Links between the pages of the repository: the file is there, and so is the heading."""

import re

import pytest

from unit.docs.pages import PAGES, ROOT, prose

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchor(heading: str) -> str:
    """The name that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


LINKS = [
    pytest.param(page, link, id=f"{page.relative_to(ROOT)}-{link}")
    for page in PAGES
    for link in _LINK.findall(prose(page))
    if "://" not in link
]


@pytest.mark.parametrize(("page", "link"), LINKS)
def test_a_relative_link_leads_somewhere(page, link):
    path, _, name = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    assert target.is_relative_to(ROOT) and target.exists()
    if name:
        assert name in {anchor(heading) for heading in _HEADING.findall(prose(target))}
