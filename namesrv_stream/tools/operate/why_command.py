"""``why``: why clients have no route to a topic or a broker, since when, the evidence, and what to do."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Final, Literal
from urllib.parse import quote

import typer

from namesrv_stream.client.commands.answer_text import printable
from namesrv_stream.client.server_states import BadAnswer, ServerUnreachable, ask_each, get
from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError
from namesrv_stream.instants import COMMAND_LINE, duration, instant
from namesrv_stream.logs import report_error
from namesrv_stream.route.why.facts import Question, is_address
from namesrv_stream.route.why.findings import Explanation, Finding, Why, finding
from namesrv_stream.settings.installation import Configuration, configured
from namesrv_stream.text_table import JsonOption
from namesrv_stream.tools.tool_options import HttpOption, emit_json, http_servers

_SUBJECTS: Final[tuple[Literal["topic", "broker"], ...]] = ("topic", "broker")


@dataclass(slots=True)
class Answers:
    """The answers by URL of the server, and why the others did not answer. The tables answer under the URL ""."""

    of_server: dict[str, Explanation] = field(default_factory=dict)
    failures: dict[str, ServerUnreachable | BadAnswer] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 if every server answers and finds nothing wrong, else 1; 3 if no server answers."""
        if not self.of_server:
            return max(failure.exit_code for failure in self.failures.values())
        return int(bool(self.failures) or not all(a.is_usable for a in self.of_server.values()))


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(configured(why))


def why(
    configuration: Configuration,
    name: Annotated[str, typer.Argument(help="A topic or a broker name.", metavar="NAME", show_default=False)],
    is_topic: Annotated[bool, typer.Option("--topic", help="NAME is a topic.")] = False,
    is_broker: Annotated[bool, typer.Option("--broker", help="NAME is a broker name.")] = False,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="The cluster in which the client looks for it.", metavar="CLUSTER")
    ] = None,
    zone: Annotated[
        str | None, typer.Option("--zone", help="The client's zone, if it is in zone mode.", metavar="ZONE")
    ] = None,
    client: Annotated[
        str | None,
        typer.Option("--client", help="The client's IP address, which may choose an address view.", metavar="IP"),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", help="Answer for that time, from the tables: '2026-11-20 03:12', -2h, …", metavar="WHEN"),
    ] = None,
    http: HttpOption = None,
    as_json: JsonOption = False,
) -> int:
    """Say why clients have no route to a topic or a broker.

    The answer has the cause, since when, the evidence, and what to do. A name that is both a broker and a topic is a
    broker, because brokers register their own names as topics. Exit code 0 if every server answers and
    finds nothing wrong, 1 if not, 3 if no server answers.
    """
    for flag, value in (("NAME", name), ("--cluster", cluster), ("--zone", zone), ("--at", at)):
        if value is not None and not value.strip():
            raise ConfigError(COMMAND_LINE, flag, "is empty")
    if client is not None and not is_address(client):
        raise ConfigError(COMMAND_LINE, "--client", f"expected an IP address, not {client!r}")
    contradictions = (("--topic", "--broker", is_topic and is_broker), ("--at", "--http", at and http))
    for one, other, is_both in (*contradictions, ("--client", "--at", client and at)):
        if is_both:
            raise ConfigError(COMMAND_LINE, one, f"cannot be combined with {other}")
    chosen = [s for s in _SUBJECTS if (s == "topic" and not is_broker) or (s == "broker" and not is_topic)]
    questions = [Question(subject, name, cluster, zone, client) for subject in chosen]
    if at is not None:
        answers = _from_tables(configuration, questions, at)
    else:
        urls = http_servers(http, None, configuration)
        answers = asyncio.run(_from_servers(urls, questions, is_certificate_checked=http is not None))
    if as_json:
        shown = [{"server": url, **asdict(answer)} for url, answer in answers.of_server.items()]
        failures = {url: failure.reason for url, failure in answers.failures.items()}
        emit_json({"answers": shown, "failures": failures})
    else:
        for url, answer in answers.of_server.items():
            print("\n".join(map(printable, _lines(url, answer))))
        for failure in answers.failures.values():
            report_error(str(failure))
    return answers.exit_code


def _from_tables(configuration: Configuration, questions: Sequence[Question], at: str) -> Answers:
    # Imported here, because Arrow and Delta take a second to import, and servers answer without them.
    from namesrv_stream.history.why import explain_past

    settings, now_ms = configuration.load().settings, SystemClock().now_ms()
    return Answers({"": _known_one([explain_past(settings, each, at, now_ms, flag="--at") for each in questions])})


async def _from_servers(urls: Sequence[str], questions: Sequence[Question], *, is_certificate_checked: bool) -> Answers:
    """Query all servers at once. To an answer without a route, add which of the other servers have one."""

    async def ask(url: str) -> Explanation:
        asked = (_asked(url, each, is_certificate_checked=is_certificate_checked) for each in questions)
        return _known_one(await asyncio.gather(*asked))

    found, failures = await ask_each(urls, ask)
    having = [url for url, answer in found.items() if answer.is_routed]
    for url, answer in found.items():
        is_known_there = any(each.cause == Why.OTHER_SERVER for each in answer.findings)
        if having and not (answer.is_routed or is_known_there):
            elsewhere = finding(Why.OTHER_SERVER, answer.name, having)
            found[url] = replace(answer, findings=[elsewhere, *answer.findings])
    return Answers(found, failures)


async def _asked(url: str, question: Question, *, is_certificate_checked: bool) -> Explanation:
    path = f"/why/{question.subject}s/{quote(question.name, safe='')}"
    given = {"cluster": question.cluster, "zone": question.zone, "client": question.client}
    query = {name: value for name, value in given.items() if value is not None}
    return await get(url, path, Explanation, is_certificate_checked=is_certificate_checked, **query)


def _known_one(answers: Sequence[Explanation]) -> Explanation:
    """Return the answer about the broker if there is such a broker, else the one about the topic."""
    return next((each for each in reversed(answers) if each.is_known), answers[0])


def _lines(url: str, answer: Explanation) -> Iterator[str]:
    where = f" at {url}" if url else ""
    yield f"{answer.subject} {answer.name}{where}: {'has a route' if answer.is_routed else 'no route'}"
    for number, each in enumerate(answer.findings):
        if number:
            yield ""
        yield from _finding_lines(each, answer.at_ms)
    for note in answer.notes:
        yield f"note      {note}"


def _finding_lines(found: Finding, at_ms: int) -> Iterator[str]:
    yield f"cause     {found.cause}: {found.text}"
    if found.since_ms is not None:
        yield f"since     {instant(found.since_ms, with_ms=True)}, {duration(max(0, at_ms - found.since_ms))} before"
    for row in found.evidence:
        what = " ".join(filter(None, (row.broker_name, row.broker_addr, row.topic and f"topic {row.topic}")))
        state = " gone" if row.gone else ""
        detail = f": {row.detail}" if row.detail else ""
        place = f"partition {row.partition} offset {row.offset}"
        yield f"evidence  {instant(row.at_ms, with_ms=True)} {row.cause} {what}{state}{detail} ({place})"
    yield f"do        {found.advice}"
