"""``guard list`` and ``guard release``: brokers that the mass-expiry guard holds."""

import sys
from typing import Annotated

import typer

from namesrv_stream.client import queries
from namesrv_stream.client.command_line import TIMEOUT_MS, Target, asks
from namesrv_stream.client.held_text import held_in, held_json, held_lines
from namesrv_stream.operate.options import ByOption, JsonOption, WaitOption
from namesrv_stream.operate.output import emit_json
from namesrv_stream.settings.command_line import Configuration, configured


def register(app: typer.Typer) -> None:
    """Add the group to the command line."""
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
        sys.stdout.write(held_lines(held) or "no broker is held\n")


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
    from namesrv_stream.operate.guard_release import release
    from namesrv_stream.operate.setting_change import this_person

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
        state = "still held" if key in released.still_held else "released"
        print(f"{state}: {key.broker_name} {key.live_key.broker_addr}")
    if released.behind is None:
        print("logged; no tables here, so whether it is folded cannot be seen", file=sys.stderr)
    elif released.behind:
        print(f"logged, not folded yet in partitions {list(released.behind)}: does the job run?")
