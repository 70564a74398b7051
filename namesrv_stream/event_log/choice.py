"""``--source``: where a command reads the log from."""

from enum import StrEnum
from typing import Annotated

import typer


class Source(StrEnum):
    """Where to read the log from: ``auto`` is Kafka as far as it reaches back, and the archive before that."""

    AUTO = "auto"
    KAFKA = "kafka"
    ARCHIVE = "archive"


SourceOption = Annotated[
    Source,
    typer.Option(
        "--source",
        help="Read Kafka, or the archive (broker_events) and then Kafka; auto: the archive for what Kafka has no more.",
    ),
]
