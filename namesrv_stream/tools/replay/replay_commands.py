"""``replay``, ``rebuild`` and ``repartition`` on the command line."""

import logging
import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError, KafkaUnreachable, PrerequisiteMissing
from namesrv_stream.instants import COMMAND_LINE, parse_past_instant
from namesrv_stream.logs import configure_logging
from namesrv_stream.settings import Settings
from namesrv_stream.settings.installation import Configuration, configured
from namesrv_stream.tools.tool_options import Source, SourceOption, shown_work

if TYPE_CHECKING:
    from namesrv_stream.tools.replay.replay import GivenOffsets, ReplayRange

logger = logging.getLogger(__name__)

_FROM = "--from-offset"
_TO = "--to-offset"
_TO_TIME = "--to-time"
_REBUILD_REMEDY = "run the same command again, which starts over; the old tables stay until the new ones are verified"
_REPARTITION_REMEDY = (
    "run the same command again; if partitions were being added, the topic stays closed until it is done"
)

JsonOption = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON, for scripts.")]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(configured(replay))
    app.command()(configured(rebuild))
    app.command()(configured(repartition))


def replay(
    configuration: Configuration,
    from_offset: Annotated[
        list[str] | None,
        typer.Option(
            _FROM,
            help="First offset to compare; may be repeated. Default: the first that can be folded.",
            metavar="[PARTITION:]OFFSET",
        ),
    ] = None,
    to_offset: Annotated[
        list[str] | None,
        typer.Option(
            _TO,
            help="Offset after the last one to compare; may be repeated. Default: the end of the tables.",
            metavar="[PARTITION:]OFFSET",
        ),
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            _TO_TIME,
            help="Compare up to the first record of this time, such as '2026-11-20 03:12' (local), 03:12, or 2h (ago).",
            metavar="WHEN",
        ),
    ] = None,
    source: SourceOption = Source.AUTO,
    as_json: JsonOption = False,
) -> int:
    """Replay the log and compare the outcome with the tables.

    Exit code 0 if they are equal; 1 with the first difference.
    """
    from namesrv_stream.tools.replay import replay_report
    from namesrv_stream.tools.replay.log_archive import log_opener
    from namesrv_stream.tools.replay.replay import replay as run

    settings = _settings(configuration)
    wanted = _range(from_offset, to_offset, to_time)
    try:
        with shown_work("a replay changes nothing; repeat it, or limit it with --from-offset") as (_, show):
            outcome = run(settings, wanted, show, log_opener(source))
    except KafkaUnreachable as error:
        raise _with_remedy(settings, error) from None
    _print(replay_report.replay_json(outcome), replay_report.replay_text(outcome), as_json=as_json)
    return 0 if outcome.is_equal else 1


def rebuild(
    configuration: Configuration,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Continue even if records that the job never folded are missing.")
    ] = False,
    accept_differences: Annotated[
        bool, typer.Option("--accept-differences", help="Continue even if the log and the old tables differ.")
    ] = False,
    source: SourceOption = Source.AUTO,
    as_json: JsonOption = False,
) -> int:
    """Rebuild lost or damaged tables from the log.

    The job must be stopped; the old tables stay under a dated name.
    """
    from namesrv_stream.tools.replay import replay_report
    from namesrv_stream.tools.replay.log_archive import log_opener
    from namesrv_stream.tools.replay.rebuild import Consent
    from namesrv_stream.tools.replay.rebuild import rebuild as run

    settings = _settings(configuration)
    consent = Consent(loss=accept_loss, differences=accept_differences)
    try:
        with shown_work(_REBUILD_REMEDY) as (say, show):
            outcome = run(settings, consent, say, show, log_opener(source, needs_kafka=True))
    except KafkaUnreachable as error:
        raise _with_remedy(settings, error) from None
    _print(replay_report.rebuild_json(outcome), replay_report.rebuild_text(outcome), as_json=as_json)
    return 0


def repartition(
    configuration: Configuration,
    partitions: Annotated[int, typer.Option("--partitions", help="The new number of partitions.", min=1)],
    as_json: JsonOption = False,
) -> int:
    """Give the events topic more partitions.

    The job must be stopped; name servers keep answering, and brokers stay registered.
    """
    from namesrv_stream.tools.replay import replay_report
    from namesrv_stream.tools.replay.topic_repartition import repartition as run

    settings = _settings(configuration)
    try:
        with shown_work(_REPARTITION_REMEDY) as (say, show):
            outcome = run(settings, partitions, say, show)
    except KafkaUnreachable as error:
        raise _with_remedy(settings, error) from None
    _print(asdict(outcome), replay_report.repartition_text(outcome), as_json=as_json)
    return 0


def _range(from_offset: list[str] | None, to_offset: list[str] | None, to_time: str | None) -> "ReplayRange":
    from namesrv_stream.tools.replay.replay import ReplayRange

    end_ms = None if to_time is None else parse_past_instant(_TO_TIME, to_time, SystemClock().now_ms())
    return ReplayRange(parse_offsets(_FROM, from_offset or ()), parse_offsets(_TO, to_offset or ()), end_ms)


def parse_offsets(flag: str, texts: Iterable[str]) -> "GivenOffsets":
    """Parse offsets, ``OFFSET`` or ``PARTITION:OFFSET``.

    Raises:
        ConfigError: A text is neither.
    """
    from namesrv_stream.tools.replay.replay import GivenOffsets

    everywhere: int | None = None
    of_partition: dict[int, int] = {}
    for text in texts:
        partition, colon, offset = text.rpartition(":")
        if not (offset.isdecimal() and (partition.isdecimal() if colon else True)):
            raise ConfigError(COMMAND_LINE, flag, f"{text!r} is neither OFFSET nor PARTITION:OFFSET")
        if colon:
            of_partition[int(partition)] = int(offset)
        else:
            everywhere = int(offset)
    return GivenOffsets(flag, everywhere, of_partition)


def _settings(configuration: Configuration) -> Settings:
    loaded = configuration.load()
    configure_logging(loaded.settings.logs.level, loaded.settings.logs.format)
    for warning in loaded.warnings:
        logger.warning("%s", warning)
    return loaded.settings


def _with_remedy(settings: Settings, error: KafkaUnreachable) -> PrerequisiteMissing:
    if not settings.is_kafka_embedded:
        return error
    return PrerequisiteMissing(error.name, "start it with `namesrv-stream kafka` and the same --conf and --data-dir")


def _print(value: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        text = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str).decode() + "\n"
    sys.stdout.write(text)
    sys.stdout.flush()
