"""docs/analytics.md shows the SQL of the commands."""

import re
from importlib.resources import files

from namesrv_stream.settings import project_home

_BLOCK = re.compile(r"^```sql (\w+\.sql)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_analytics_page_shows_the_sql_of_every_question() -> None:
    shown = dict(_BLOCK.findall((project_home() / "docs" / "analytics.md").read_text(encoding="utf-8")))
    asked = {
        file.name: file.read_text(encoding="utf-8")
        for file in files("namesrv_stream.history").joinpath("sql").iterdir()
        if file.name.endswith(".sql")
    }
    assert shown == asked
