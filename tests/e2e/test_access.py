"""mqadmin against a server that accepts changes only with a valid ACL signature."""

import pytest

from tests.e2e.conftest import ACCESS_KEY, SECRET_KEY
from tests.support.processes import wait_until
from tests.support.rocketmq import Broker
from tests.support.rocketmq_peers import Mqadmin, MqadminError
from tests.support.second_server import SecondServer
from tests.support.stack import Stack

NO_PERMISSION = 16
SHARED_S = 20.0


def _put(mqadmin: Mqadmin, namesrv_addr: str, value: str) -> str:
    return mqadmin.run("updateOrderConf", "-n", namesrv_addr, "-t", "Guarded", "-m", "put", "-v", value)


def _get(mqadmin: Mqadmin, namesrv_addr: str) -> str:
    return mqadmin.outcome("updateOrderConf", "-n", namesrv_addr, "-t", "Guarded", "-m", "get")


def test_signed_change_is_made_and_reaches_the_other_server(
    stack: Stack, second_server: SecondServer, mqadmin: Mqadmin
) -> None:
    with mqadmin.signing(ACCESS_KEY, SECRET_KEY):
        assert "success" in _put(mqadmin, second_server.remoting, "signed:1")
    assert "signed:1" in _get(mqadmin, second_server.remoting)
    stack.wait_job()
    wait_until(lambda: "signed:1" in _get(mqadmin, stack.remoting), SHARED_S, "the other server has the change")


def test_unsigned_change_is_refused(second_server: SecondServer, mqadmin: Mqadmin) -> None:
    with pytest.raises(MqadminError) as refused:
        _put(mqadmin, second_server.remoting, "unsigned:1")
    assert refused.value.code == NO_PERMISSION
    assert "unsigned:1" not in _get(mqadmin, second_server.remoting)


@pytest.mark.parametrize(("access_key", "secret_key"), [(ACCESS_KEY, "guessed0"), ("stranger", SECRET_KEY)])
def test_badly_signed_change_is_refused(
    second_server: SecondServer, mqadmin: Mqadmin, access_key: str, secret_key: str
) -> None:
    with mqadmin.signing(access_key, secret_key), pytest.raises(MqadminError) as refused:
        _put(mqadmin, second_server.remoting, "bad:1")
    assert refused.value.code == NO_PERMISSION


def test_signed_update_of_the_configuration_is_refused_by_default(
    second_server: SecondServer, mqadmin: Mqadmin
) -> None:
    args = ("-n", second_server.remoting, "-k", "enableTopicList", "-v", "false")
    with mqadmin.signing(ACCESS_KEY, SECRET_KEY), pytest.raises(MqadminError) as refused:
        mqadmin.run("updateNamesrvConfig", *args)
    assert refused.value.code == NO_PERMISSION


def test_trusted_operator_needs_no_signature(stack: Stack, periodic_broker: Broker, mqadmin: Mqadmin) -> None:
    assert "success" in _put(mqadmin, stack.remoting, "trusted:1")
