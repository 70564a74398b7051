"""The command ``drain``: its flags, and its verdict as text and JSON."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer
from typer.exceptions import Exit

from namesrv_stream.client.commands.query_options import Target, name_server_command
from namesrv_stream.client.name_servers import NameServers
from namesrv_stream.errors import ConfigError, NamesrvStreamError
from namesrv_stream.instants import COMMAND_LINE, duration
from namesrv_stream.settings.installation import duration_option
from namesrv_stream.text_table import JsonOption
from namesrv_stream.tools.drain.broker_routes import BrokerRoutes
from namesrv_stream.tools.drain.drain_run import DrainRun, Limits, Progress
from namesrv_stream.tools.drain.drain_state import POLLS, DrainState, Step
from namesrv_stream.tools.drain.undo_run import UndoRun
from namesrv_stream.tools.tool_options import emit_json

_DEFAULTS_MS: Final = {"--poll-interval": 30_000, "--quiet": 10_000, "--timeout": 300_000}


def _duration(flag: str, text: str) -> Any:
    text = f"{text} Default: {duration(_DEFAULTS_MS[flag])}."
    return duration_option(flag, help=text, least_ms=1_000, most_ms=86_400_000)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(name_server_command(drain))


def drain(
    target: Target,
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="Name of the broker.", show_default=False)],
    undo: Annotated[bool, typer.Option("--undo", help="Restore the permissions from before the drain.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a drain that ended before it was safe.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Drain it even if no other broker accepts messages of some topic.")
    ] = False,
    poll_interval: Annotated[
        int | None, _duration("--poll-interval", "How often clients query routes (pollNameServerInterval).")
    ] = None,
    quiet: Annotated[int | None, _duration("--quiet", "How long the broker must store no message.")] = None,
    timeout: Annotated[int | None, _duration("--timeout", "How long to wait.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Drain a broker: wait until it is safe to stop.

    It removes the write permission at all name servers. The exit code is 0 only if the broker is safe to stop. The
    permission stays removed until --undo.
    """
    given = {"--undo": undo, "--resume": resume, "--force": force}
    given |= {"--poll-interval": undo and poll_interval is not None, "--quiet": undo and quiet is not None}
    flags = [flag for flag, is_given in given.items() if is_given]
    if not broker.strip():
        raise ConfigError(COMMAND_LINE, "BROKER", "is empty")
    if len(flags) > 1:
        raise ConfigError(COMMAND_LINE, flags[1], f"cannot be combined with {flags[0]}")
    limits = _limits({"--poll-interval": poll_interval, "--quiet": quiet, "--timeout": timeout}, is_undo=undo)
    progress = Progress(as_json=as_json)

    async def run(servers: NameServers) -> Mapping[str, Any]:
        routes = BrokerRoutes(servers, broker)
        undo_run = UndoRun(routes, limits, progress)
        drain_run = DrainRun(routes, limits, progress, is_resumed=resume, is_forced=force)
        try:
            return await undo_run.undo() if undo else _verdict(drain_run, await drain_run.drain())
        except (asyncio.CancelledError, NamesrvStreamError) as error:
            state = undo_run.state if undo else drain_run.state
            if state or isinstance(error, asyncio.CancelledError):
                progress.say(f"interrupted: {state or 'nothing was changed'}")
            raise
        finally:
            await routes.close()

    answer = target.ask(run)
    if as_json:
        emit_json(answer)
    if not answer.get("safe", True):
        raise Exit(1)


def _limits(given_ms: Mapping[str, int | None], *, is_undo: bool) -> Limits:
    """Return the durations.

    Raises:
        ConfigError: The timeout is shorter than a drain can be.
    """
    limits = Limits(*(_DEFAULTS_MS[flag] if ms is None else ms for flag, ms in given_ms.items()))
    least_ms = max(POLLS * limits.poll_interval_ms, limits.quiet_ms)
    if not is_undo and limits.timeout_ms <= least_ms:
        reason = f"{duration(limits.timeout_ms)} is too short: two poll intervals and the quiet time"
        raise ConfigError(COMMAND_LINE, "--timeout", f"{reason} take at least {duration(least_ms)}")
    return limits


def _verdict(run: DrainRun, state: DrainState) -> dict[str, Any]:
    """Print the verdict, and return it as JSON."""
    name, is_safe = run.routes.broker_name, state.step is Step.SAFE
    hidden_ms, quiet_ms = state.hidden_for_ms, state.quiet_for_ms
    if is_safe:
        run.progress.say(
            f"safe to stop: no name server has offered {name} for writing for {duration(hidden_ms or 0)},"
            f" and it has stored no message for {duration(quiet_ms or 0)}"
        )
    else:
        run.progress.say(f"not safe: {'; '.join(state.obstacles())}")
        run.progress.say(run.state)
    return {
        "broker": name,
        "safe": is_safe,
        "reasons": list(state.obstacles()),
        "topics": len(run.record.perms) if run.record else 0,
        "wipes": state.wipes,
        "name_servers": run.routes.addrs,
        "elapsed_ms": round(run.progress.elapsed_ms),
        "not_offered_ms": hidden_ms,
        "quiet_ms": quiet_ms,
        "messages_stored": None if state.counter is None else state.counter.puts,
    }
