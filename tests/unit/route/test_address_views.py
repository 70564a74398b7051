"""Which addresses the clients of a view receive, and which view a client has."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.route.address_views import AddressView, AddressViews, Broker, Pattern, parse_view

INNER = Broker("broker-a7", 1, "10.0.0.5:10911")


def a_view(name: str = "outside", **document: Any) -> AddressView:
    return parse_view(name, json.dumps(document))


@pytest.mark.parametrize(
    ("pattern", "addr"),
    [
        ("broker.example.org:10911", "broker.example.org:10911"),
        ("{broker_name}-{broker_id}.example.org:{10911+id}", "broker-a7-1.example.org:10912"),
        ("node.example.org:{30000 + 10*n + id}", "node.example.org:30071"),
        ("{host}.nip.io:{port}", "10.0.0.5.nip.io:10911"),
        ("[2001:db8::1]:{port+20000}", "[2001:db8::1]:30911"),
    ],
)
def test_a_pattern_gives_the_address_of_a_broker(pattern: str, addr: str) -> None:
    assert Pattern(pattern).address_of(INNER) == addr


@pytest.mark.parametrize(
    ("pattern", "broker"),
    [
        ("node:{30000+n}", INNER._replace(broker_name="broker-a")),  # no number at its end
        ("node:{port}", INNER._replace(broker_addr="broken")),
        ("node:{60000+n}", INNER._replace(broker_name="broker-99999")),  # no port
        ("{broker_name}.example.org:10911", INNER._replace(broker_name="no host name")),
    ],
)
def test_a_pattern_without_a_valid_result_does_not_apply(pattern: str, broker: Broker) -> None:
    assert Pattern(pattern).address_of(broker) is None


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("{", "the value is not JSON"),
        ("[]", "the value: expected an object with listeners, networks, unmapped, mappings"),
        ('{"listener": []}', "listener: unknown key"),
        ('{"listeners": "outside"}', "listeners: expected a list of strings"),
        ('{"networks": ["10.0.0.1/8"]}', "networks: 10.0.0.1/8 has host bits set"),
        ('{"unmapped": "drop"}', "unmapped: expected keep or omit"),
        ('{"mappings": {}}', "mappings: expected a list of at most 1,000 mappings"),
        ('{"mappings": [{"to": "a:1"}, {"broker_name": "a"}]}', r"mappings\[1\].to: is missing"),
        ('{"mappings": [{"to": "a:1", "addr": "b:2"}]}', r"mappings\[0\].addr: unknown key"),
        ('{"mappings": [{"to": "a:1", "broker_addr": ""}]}', r"mappings\[0\].broker_addr: expected a string"),
        ('{"mappings": [{"to": "a"}]}', r"mappings\[0\].to: 'a' is not host:port"),
        ('{"mappings": [{"to": "a:{1+x}"}]}', r"mappings\[0\].to: {1\+x} is not known"),
        ('{"mappings": [{"to": "a:{id"}]}', r"mappings\[0\].to: 'a:{id' has an unpaired brace"),
    ],
)
def test_an_invalid_document_is_refused_with_view_key_and_problem(document: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^address view 'outside': {problem}"):
        parse_view("outside", document)


def test_an_invalid_view_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^address view 'no name': expected a name"):
        parse_view("no name", "{}")


def test_the_first_mapping_that_applies_wins() -> None:
    view = a_view(
        mappings=[
            {"broker_addr": "10.0.0.5:10911", "to": "exact:1"},
            {"broker_name": "broker-*", "to": "node:{30000+n}"},
            {"broker_name": "broker-*", "to": "named:2"},
        ]
    )
    assert view.mapped(INNER) == "exact:1"
    assert view.mapped(INNER._replace(broker_addr="10.0.0.6:10911")) == "node:30007"
    assert view.mapped(Broker("broker-b", 0, "10.0.0.7:10911")) == "named:2"
    assert view.mapped(Broker("other", 0, "10.0.0.7:10911")) is None


def test_an_address_without_mapping_is_kept_or_omitted() -> None:
    addrs = {0: "10.0.0.5:10911", 1: "10.0.0.6:10911"}
    mappings = [{"broker_addr": "10.0.0.5:10911", "to": "a:1"}]
    keeping, omitting = a_view(mappings=mappings), a_view(mappings=mappings, unmapped="omit")
    assert keeping.addrs_for_clients("broker-a", addrs) == {"10.0.0.5:10911": "a:1", "10.0.0.6:10911": "10.0.0.6:10911"}
    assert omitting.addrs_for_clients("broker-a", addrs) == {"10.0.0.5:10911": "a:1"}
    assert list(keeping.unmapped("broker-a", addrs)) == [Broker("broker-a", 1, "10.0.0.6:10911")]


def _views(**documents: dict[str, Any]) -> AddressViews:
    return AddressViews({name: json.dumps(document) for name, document in documents.items()})


def test_the_listener_chooses_the_view_and_then_the_smallest_network() -> None:
    views = _views(
        office={"networks": ["192.0.2.0/24", "2001:db8::/32"]},
        outside={"listeners": ["outside"], "networks": ["0.0.0.0/0"]},
    )

    def chosen(listener: str, host: str) -> str | None:
        view = views.view_of(listener, host)
        return None if view is None else view.name

    assert chosen("outside", "192.0.2.7") == "outside"
    assert chosen("", "192.0.2.7") == "office"
    assert chosen("", "198.51.100.1") == "outside"
    assert chosen("", "2001:db8::1") == "office"
    assert chosen("", "2001:db9::1") is None
    assert chosen("", "") is None
    assert chosen("unknown", "") is None


def test_two_views_cannot_have_the_same_listener_or_network() -> None:
    views = _views(outside={"listeners": ["outside"], "networks": ["192.0.2.0/24"]})
    assert views.conflict(a_view("outside", listeners=["outside"])) is None
    assert views.conflict(a_view("other", networks=["192.0.2.0/25"])) is None
    shared = views.conflict(a_view("other", listeners=["lan", "outside"]))
    assert shared == "address view 'other': outside belongs to address view 'outside'"
    assert views.conflict(a_view("other", networks=["192.0.2.0/24"])) is not None


def test_an_invalid_entry_is_reported_and_does_not_affect_other_views() -> None:
    views = AddressViews({"outside": "{}", "later": '{"of_a_later_release": 1}'})
    assert list(views.by_name) == ["outside"]
    assert "unknown key" in views.faults["later"]


def test_every_version_of_every_view_has_its_own_number() -> None:
    first = _views(outside={}, lan={})
    second = AddressViews(first.entries, first.next_number)
    numbers = [n for views in (first, second) for n in (views.number, *(v.number for v in views.by_name.values()))]
    assert len(set(numbers)) == len(numbers)


@given(st.text(), st.text())
def test_any_invalid_name_or_document_is_refused_with_an_address_view_error(name: str, document: str) -> None:
    with pytest.raises(ValueError, match=r"^address view "):
        parse_view(name, document)


@given(st.builds(Broker, st.text(), st.integers(), st.text()), st.text("{}+*idnport1 .:"))
def test_a_pattern_gives_an_address_for_any_broker_or_none(broker: Broker, text: str) -> None:
    try:
        pattern = Pattern(text)
    except ValueError:
        return
    addr = pattern.address_of(broker)
    assert addr is None or Pattern(addr).address_of(INNER) == addr
