"""The table that `make bench` prints, and the file that it writes."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from tests.bench.contenders import CEILING, JAVA, JAVA_NEWEST, OURS, OURS_ALONE, OURS_WITHOUT_VIEWS
from tests.bench.figures import Figure, Spread

_CONTENDERS = (OURS, OURS_ALONE, OURS_WITHOUT_VIEWS, JAVA, JAVA_NEWEST, CEILING)


def print_figures(figures: Sequence[Figure], console: Console) -> None:
    """Print one table of all figures, with the measured contenders."""
    contenders = [name for name in _CONTENDERS if any(name in figure.values for figure in figures)]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), caption=_CAPTION)
    table.add_column("what")
    for heading in (*contenders, "times the peer", "goal", "reached"):
        table.add_column(heading, justify="right", no_wrap=True)
    last = ""
    for figure in figures:
        if figure.row != last:
            table.add_section()
            table.add_row(f"[bold]{figure.row}[/bold]")
            last = figure.row
        table.add_row(
            f"  {figure.name}",
            *(_text(figure.values.get(name), figure.digits) for name in contenders),
            "\n".join(f"{one.median:.2f} ({one.least:.2f} to {one.greatest:.2f})" for one in figure.quotients.values()),
            figure.goal,
            {True: "yes", False: "[bold]no[/bold]", None: ""}[figure.is_met],
        )
    console.print(table)


_CAPTION = (
    "Medians of alternating runs. Kafka and the Spark job run next to namesrv-stream, except for “alone”. "
    "Times the peer: quotients of runs of one round, median (minimum to maximum), to Java 5.3.3 and to 5.5.0; for "
    "address views, to the same server without them."
)


def write_results(path: Path, machine: dict[str, Any], plan: dict[str, Any], figures: Sequence[Figure]) -> None:
    """Write the figures as JSON, one per line, so that versions can be compared."""
    lines = ",\n".join(f"    {json.dumps(_rounded(asdict(figure)), ensure_ascii=False)}" for figure in figures)
    head = json.dumps({"machine": machine, "plan": plan}, indent=2, ensure_ascii=False)[:-2]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{head},\n  "figures": [\n{lines}\n  ]\n}}\n', encoding="utf-8")


def _text(value: Spread | None, digits: int) -> str:
    return "" if value is None else f"{value.median:,.{digits}f}"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return value
