"""A hook of mkdocs: links from a page to files of the repository outside `docs` become plain text on the site.

They lead somewhere on the host of the repository only; `tests/unit/docs/test_links.py` checks them.
"""

import posixpath
import re
from typing import Any, Final

_LINK: Final = re.compile(r"(?<!!)\[([^\]\n]+)\]\((\.\.?/[^)\s]+)\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page without links that leave the folder `docs`."""
    folder = posixpath.dirname(page.file.src_uri)

    def replaced(link: re.Match[str]) -> str:
        leaves = posixpath.normpath(posixpath.join(folder, link[2])).startswith("..")
        return link[1] if leaves else link[0]

    return _LINK.sub(replaced, markdown)
