"""Builders of broker groups for the tests of RocketMQ's registration rules."""

from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import DataVersion, Registration, RegistrationSettings
from namesrv_stream.route.registration import Registered, register
from tests.support.builders import HOLDER, NAME, a_registration

MASTER = "10.0.0.1:10911"
SLAVE = "10.0.0.2:10911"
THIRD = "10.0.0.3:10911"
V2 = DataVersion(2, 2_000, 0)


def register_in(group: BrokerGroup, registration: Registration, *, delete: bool = False) -> Registered:
    return register(group, registration, "s1", HOLDER, RegistrationSettings(delete))


def group_after(*registrations: Registration, group: BrokerGroup | None = None, delete: bool = False) -> BrokerGroup:
    group = group or BrokerGroup(NAME)
    for registration in registrations:
        group = register_in(group, registration, delete=delete).group
    return group


def acting(addr: str, broker_id: int, **changes: object) -> Registration:
    return a_registration(addr, broker_id, enable_acting_master=True, **changes)


def perms_of(group: BrokerGroup) -> set[int]:
    return {q.perm for q in group.topics.values()}
