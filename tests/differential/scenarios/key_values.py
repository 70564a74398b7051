"""100, 101, 102, 219. Source: rocketmq 5.3.3, DefaultRequestProcessor, KVConfigManager."""

from typing import Final

from namesrv_stream.route.address_views import VIEWS_NAMESPACE
from tests.differential.client_requests import delete_kv, get_kv, kv_list, put_kv
from tests.differential.request import Request
from tests.differential.scenario import Scenario, ask, scenario

SCENARIOS: Final[tuple[Scenario, ...]] = (
    scenario("kv: put", ask(put_kv("~n", "k", "v"))),
    scenario("kv: put again", ask(put_kv("~n", "k", "v")), ask(put_kv("~n", "k", "w")), ask(put_kv("~n", "k", "w"))),
    scenario(
        "kv: two keys, two namespaces", ask(put_kv("~n", "k", "1"), put_kv("~n", "l", "2"), put_kv("~m", "k", "3"))
    ),
    scenario("kv: delete", ask(put_kv("~n", "k", "v"), put_kv("~n", "l", "w")), ask(delete_kv("~n", "k"))),
    scenario(
        "kv: a namespace survives its last key",
        ask(put_kv("~n", "k", "v")),
        ask(delete_kv("~n", "k")),
        ask(kv_list("~n")),
        ask(put_kv("~n", "k", "v")),
    ),
    scenario(
        "kv: delete an absent key",
        ask(delete_kv("~n", "k")),
        ask(put_kv("~n", "k", "v")),
        ask(delete_kv("~n", "l")),
    ),
    scenario("kv: get an absent key", ask(get_kv("~n", "k"), kv_list("~n"))),
    scenario("kv: an empty value", ask(put_kv("~n", "k", ""))),
    scenario("kv: an empty namespace and key", ask(put_kv("~", "", "v"), put_kv("~n", "", "w"))),
    scenario("kv: values to escape", ask(put_kv('~n"\\', "k/é\n", "ключ \u2028 ' \" \\ / \x7f \x85 \x01 😀"))),
    scenario("kv: a large value", ask(put_kv("~n", "k", "x" * 20_000))),
    scenario("kv: many keys", ask(*(put_kv("~n", f"k{n}", str(n)) for n in range(30)))),
    scenario("kv: put without a namespace", ask(Request(100, {"key": "~k", "value": "v"})), is_observed=False),
    scenario("kv: put without a key", ask(Request(100, {"namespace": "~n", "value": "v"})), is_observed=False),
    scenario(
        "kv: put without a value",
        ask(Request(100, {"namespace": "~n", "key": "k"}), differs="missing-field"),
        is_observed=False,
    ),
    scenario(
        "kv: put an invalid address view",
        ask(put_kv(VIEWS_NAMESPACE, "~v", '{"mappings": [{"to": "nowhere"}]}'), differs="address-views"),
        is_observed=False,
    ),
    scenario("kv: put without ext fields", ask(Request(100), Request(100, {})), is_observed=False),
    scenario(
        "kv: get without a namespace or key",
        ask(Request(101, {"key": "~k"}), Request(101, {"namespace": "~n"}), Request(101)),
        is_observed=False,
    ),
    scenario(
        "kv: delete without a namespace or key",
        ask(Request(102, {"key": "~k"}), Request(102, {"namespace": "~n"}), Request(102)),
        is_observed=False,
    ),
    scenario("kv: list without a namespace", ask(Request(219), Request(219, {})), is_observed=False),
    scenario("kv: put oneway", ask(put_kv("~n", "k", "v").oneway())),
    scenario("kv: delete oneway", ask(put_kv("~n", "k", "v")), ask(delete_kv("~n", "k").oneway())),
    scenario("kv: binary", ask(put_kv("~n", "k", "v").binary(), get_kv("~n", "k").binary(), differs="binary-answer")),
)
