"""``guard list`` and ``guard release``: brokers that the mass-expiry guard keeps."""

import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from namesrv_stream.client import queries
from namesrv_stream.client.commands.options import TIMEOUT_MS, Target, asks
from namesrv_stream.client.commands.tables import held_in, held_json, held_lines
from namesrv_stream.errors import QueryNotFound
from namesrv_stream.route.events import DIRECT, GuardReleased, Origin
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.route.table import RouteTable
from namesrv_stream.settings import Settings
from namesrv_stream.settings.installation import Configuration, configured
from namesrv_stream.tools.operate.operator_events import TablesWatch, broadcast
from namesrv_stream.tools.operate.setting_change import check_person
from namesrv_stream.tools.options import ByOption, JsonOption, WaitOption, emit_json


@dataclass(frozen=True, slots=True)
class Released:
    """The outcome of a release.

    Attributes:
        brokers: The protected brokers, according to the tables.
        still_held: Those that the tables still show as protected.
        behind: Partitions that have not folded the release yet; None if there are no tables here.
    """

    brokers: tuple[LeaseKey, ...]
    still_held: tuple[LeaseKey, ...]
    behind: tuple[int, ...] | None


def release(settings: Settings, cluster: str, by: str, timeout_s: float) -> Released:
    """Log the release and wait until the tables contain it; blocks.

    Args:
        settings: Where Kafka and the tables are.
        cluster: The cluster of the brokers.
        by: Who releases them.
        timeout_s: Seconds to wait for the tables.

    Raises:
        QueryNotFound: No broker of the cluster is protected.
        KafkaUnreachable: Kafka does not answer.
        PartlyLogged: Only some partitions have the event.
    """
    by = check_person(by)
    with TablesWatch(settings) as watch:
        held = _held(watch.table, cluster)
        if watch.exists and not held:
            raise QueryNotFound(f"no broker of cluster {cluster} is protected")
        offsets = broadcast(settings, GuardReleased(Origin(DIRECT, 0), cluster, by))
        behind = tuple(watch.wait(offsets, timeout_s)) if watch.exists else None
    after = _held(watch.table, cluster)
    return Released(held, tuple(key for key in held if key in after), behind)


def _held(table: RouteTable, cluster: str) -> tuple[LeaseKey, ...]:
    return tuple(sorted(key for key in table.held if key.live_key.cluster == cluster))


def register(app: typer.Typer) -> None:
    """Add the group ``guard`` to ``app``."""
    guard = typer.Typer(help="List and release protected brokers.", no_args_is_help=True)
    guard.command("list")(asks(guard_list))
    guard.command("release")(configured(guard_release))
    app.add_typer(guard, name="guard")


def guard_list(target: Target, as_json: JsonOption = False) -> None:
    """List the protected brokers, with the reasons."""
    held = list(held_in(*target.ask(lambda servers: queries.brokers_and_holds(servers, TIMEOUT_MS))))
    if as_json:
        emit_json(held_json(held))
    else:
        sys.stdout.write(held_lines(held) or "no broker is protected\n")


def guard_release(
    configuration: Configuration,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER")],
    by: ByOption = None,
    wait: WaitOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Remove the protected brokers of a cluster now.

    For brokers that are really down. A broker that is alive returns with its next registration.
    """
    from namesrv_stream.tools.operate.setting_change import this_person

    released = release(configuration.load().settings, cluster, by or this_person(), wait)
    if as_json:
        brokers = [
            {
                "broker_name": key.broker_name,
                **key.live_key._asdict(),
                "still_held": key in released.still_held,
            }
            for key in released.brokers
        ]
        emit_json({"brokers": brokers, "behind": released.behind})
        return
    for key in released.brokers:
        state = "still protected" if key in released.still_held else "released"
        print(f"{state}: {key.broker_name} {key.live_key.broker_addr}")
    if released.behind is None:
        print("logged; there are no tables here to see whether it is folded", file=sys.stderr)
    elif released.behind:
        print(f"logged, not folded yet in partitions {list(released.behind)}: does the job run?")
