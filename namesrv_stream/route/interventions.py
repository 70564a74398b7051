"""What operators do to the fold: change its settings, release what the guard holds."""

from dataclasses import asdict

from namesrv_stream.route.changes import Cause, ChangeKind
from namesrv_stream.route.events import GuardReleased, SettingsChanged
from namesrv_stream.route.fold_step import FoldStep
from namesrv_stream.route.interpretation import setting_differences
from namesrv_stream.route.liveness import let_go
from namesrv_stream.route.setting_history import change_detail
from namesrv_stream.route.settings import setting_text


def change_settings(step: FoldStep, event: SettingsChanged) -> None:
    """Take over values; those of a file are kept beside those in effect, to tell who set which."""
    state = step.state
    before = {name: setting_text(value) for name, value in asdict(state.settings).items()}
    state.settings = state.settings.with_values(dict(event.values))
    state.requeue()
    for lease in state.leases.values():
        lease.settled = False  # The rules of a registration depend on them.
    for kind, gone, columns in setting_differences(event):
        detail = change_detail(event.source, before.get(columns["key"]))
        step.row(kind, gone, Cause.SETTINGS_CHANGED, detail, **columns)
    for cluster in sorted({key.live_key.cluster for key, lease in state.leases.items() if lease.hold}):
        if not state.settings.is_guarded(cluster):
            let_go(step, cluster, Cause.SETTINGS_CHANGED, f"by {event.source}")


def release_guard(step: FoldStep, event: GuardReleased) -> None:
    """Let go of the brokers of a cluster; that none was held leaves a row too."""
    if not let_go(step, event.cluster, Cause.GUARD_RELEASED, f"by {event.source}"):
        detail = f"by {event.source}: no broker of {event.cluster} is held"
        step.row(ChangeKind.IGNORED, False, Cause.GUARD_RELEASED, detail, cluster=event.cluster)
