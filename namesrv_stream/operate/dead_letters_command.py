"""``dead-letters``: the records that the job refused, when, why, and what they held."""

from typing import Annotated

import typer

from namesrv_stream.clock import SystemClock
from namesrv_stream.instants import check_past, instant, parse_since
from namesrv_stream.operate.options import JsonOption
from namesrv_stream.operate.output import emit_json
from namesrv_stream.settings.command_line import Configuration
from namesrv_stream.text_table import WideOption


def dead_letters(
    configuration: Configuration,
    since: Annotated[
        str | None, typer.Option("--since", help="Only records refused since then, such as 2h.", metavar="WHEN")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="The newest N; 0 for all.", min=0, metavar="N")] = 20,
    wide: WideOption = False,
    as_json: JsonOption = False,
) -> None:
    """List the records that the job refused, with the reasons.

    Kafka keeps them for kafka.retention_ms.
    """
    from namesrv_stream.operate.dead_letters import read_dead_letters
    from namesrv_stream.operate.dead_letters_text import as_json as to_json
    from namesrv_stream.operate.dead_letters_text import print_refused

    now_ms = SystemClock().now_ms()
    since_ms = None if since is None else check_past("--since", parse_since("--since", since, now_ms), now_ms)
    refused = read_dead_letters(configuration.load().settings, since_ms, limit)
    if as_json:
        emit_json(to_json(refused.records))
    elif refused.records:
        print_refused(refused, wide=wide)
    else:
        print("no record was refused" + (f" since {instant(since_ms)}" if since_ms is not None else ""))
