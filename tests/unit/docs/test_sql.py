"""docs/analytics.md shows the SQL that the commands ask."""

import re
from importlib.resources import files

from namesrv_stream.settings import project_home

_BLOCK = re.compile(r"^```sql (\w+\.sql)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_question_of_the_package_is_shown_as_it_is_asked() -> None:
    shown = dict(_BLOCK.findall((project_home() / "docs" / "analytics.md").read_text(encoding="utf-8")))
    asked = {
        file.name: file.read_text(encoding="utf-8")
        for file in files("namesrv_stream.history").joinpath("sql").iterdir()
        if file.name.endswith(".sql")
    }
    assert shown == asked
