"""Address views: the addresses that clients of a listener or a network receive instead of the registered ones.

A view is an entry of the KV table: its key is the name of the view, and its value is a JSON document with
``listeners``, ``networks``, ``unmapped`` and ``mappings`` (docs/address-views.md). The first mapping that applies to a
broker determines the address that clients receive. A mapping whose result is not ``host:port`` does not apply.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, Final, NamedTuple

import orjson

from namesrv_stream.addresses import canonical_addr, join_addr, parts_of, split_addr

#: The KV namespace that contains the views.
VIEWS_NAMESPACE: Final = "namesrv-stream.address-views"
#: Fields of a document, and of one of its mappings.
_KEYS: Final = ("listeners", "networks", "unmapped", "mappings")
_MAPPING_KEYS: Final = ("broker_addr", "broker_name", "to")
_MAX_MAPPINGS: Final = 1_000
#: The limit for mappings without ``broker_addr``: each of them may be tried for every broker, while other requests
#: wait.
_MAX_GENERAL_MAPPINGS: Final = 100

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FIELD: Final = re.compile(r"\{([^{}]*)\}")
_TERM: Final = re.compile(r"(?:([0-9]{1,5})\*)?([a-z]+)|([0-9]{1,5})")
_NUMBER_AT_END: Final = re.compile(r"[0-9]{1,5}\Z")
_TEXTS: Final = ("broker_name", "broker_id", "host")
_NUMBERS: Final = ("id", "n", "port")

Network = IPv4Network | IPv6Network


class Broker(NamedTuple):
    """A broker with the name, the brokerId and the address under which it registered."""

    broker_name: str
    broker_id: int
    broker_addr: str

    def texts(self) -> dict[str, str]:
        host, _ = parts_of(self.broker_addr)
        shown = f"[{host}]" if ":" in host else host
        return {"broker_name": self.broker_name, "broker_id": str(self.broker_id), "host": shown}

    def numbers(self) -> dict[str, int]:
        """Return name → value of the numbers that a pattern may use: ``id``, ``n`` and ``port``.

        ``id`` is the brokerId. ``n`` is the number at the end of the broker's name, and ``port`` that of its address;
        each is absent if there is none.
        """
        _, port = parts_of(self.broker_addr)
        found = {"id": self.broker_id}
        if number := _NUMBER_AT_END.search(self.broker_name):
            found["n"] = int(number[0])
        if port.isascii() and port.isdigit() and len(port) <= 5:
            found["port"] = int(port)
        return found


#: A sum: each term is a factor and the name of a number, or a constant and "".
_Sum = tuple[tuple[int, str], ...]


class Pattern:
    """A pattern of addresses, such as ``{broker_name}-{broker_id}.example.org:{10911+id}``.

    Raises:
        ValueError: The text is not a pattern, or never gives ``host:port``.
    """

    def __init__(self, text: str) -> None:
        literals, fields = _FIELD.split(text)[::2], _FIELD.findall(text)
        if any(brace in literal for literal in literals for brace in "{}"):
            raise ValueError(f"{text!r} has an unpaired brace")
        self._fields = tuple(field if field in _TEXTS else _sum_of(field) for field in fields)
        self._literals = tuple(literals)
        sample = self._joined(["x" if isinstance(field, str) else "1" for field in self._fields])
        if _address(sample) is None:
            raise ValueError(f"{text!r} is not host:port")

    def address_of(self, broker: Broker) -> str | None:
        """Return the address for a broker.

        None if the broker lacks a number that the pattern uses, or if the result is not ``host:port``.
        """
        texts, numbers = broker.texts(), broker.numbers()
        values = []
        for field in self._fields:
            if isinstance(field, str):
                values.append(texts[field])
            elif all(not name or name in numbers for _, name in field):
                values.append(str(sum(factor * (numbers[name] if name else 1) for factor, name in field)))
            else:
                return None
        return _address(self._joined(values))

    def _joined(self, values: Sequence[str]) -> str:
        return "".join(literal + value for literal, value in zip(self._literals, (*values, ""), strict=True))


def _sum_of(field: str) -> _Sum:
    terms = []
    for text in field.replace(" ", "").split("+"):
        term = _TERM.fullmatch(text)
        if term is None or (term[2] and term[2] not in _NUMBERS):
            expected = f"{', '.join(_TEXTS)}, or a sum of numbers and {', '.join(_NUMBERS)} such as 10911+id"
            raise ValueError(f"{{{field}}} is not known: expected {expected}")
        terms.append((int(term[1] or 1), term[2]) if term[2] else (int(term[3]), ""))
    return tuple(terms)


def _address(text: str) -> str | None:
    try:
        return join_addr(*split_addr(text))
    except ValueError:
        return None


class AddressMapping(NamedTuple):
    """A rule of a view: brokers with this ``broker_addr`` and ``broker_name`` ("" for any) get the address ``to``.

    ``broker_name`` may contain wildcards.
    """

    broker_addr: str
    broker_name: str
    to: Pattern

    def address_of(self, broker: Broker) -> str | None:
        """Return the address for a broker; None if the rule does not apply. ``broker_addr`` is not checked here."""
        if self.broker_name and not fnmatchcase(broker.broker_name, self.broker_name):
            return None
        return self.to.address_of(broker)


@dataclass(frozen=True, slots=True, eq=False)
class AddressView:
    """A view. ``number`` is different for every view and every version of it.

    Attributes:
        listeners: Names of listeners whose clients have this view.
        networks: Networks whose clients have this view.
        keeps_unmapped: Whether clients receive an address without a mapping unchanged. Otherwise it is left out.
        mappings: The rules without ``broker_addr``, for addresses that are not in ``mappings_of``.
        mappings_of: canonical ``broker_addr`` → the rules with it and those without any, in the order of the document.
    """

    name: str
    number: int
    listeners: tuple[str, ...]
    networks: tuple[Network, ...]
    keeps_unmapped: bool
    mappings: tuple[AddressMapping, ...]
    mappings_of: Mapping[str, tuple[AddressMapping, ...]]

    def mapped(self, broker: Broker) -> str | None:
        """Return the address to which the view maps a broker; None if there is no mapping."""
        mappings = self.mappings_of.get(canonical_addr(broker.broker_addr), self.mappings)
        return next((addr for m in mappings if (addr := m.address_of(broker)) is not None), None)

    def addrs_for_clients(self, broker_name: str, broker_addrs: Mapping[int, str]) -> dict[str, str]:
        """Return own address → address that clients receive, for the brokers that the view does not leave out.

        Args:
            broker_name: The broker name.
            broker_addrs: brokerId → the broker's own address.
        """
        addrs = {}
        for broker_id, broker_addr in broker_addrs.items():
            addr = self.mapped(Broker(broker_name, broker_id, broker_addr))
            if addr is not None or self.keeps_unmapped:
                addrs[broker_addr] = addr or broker_addr
        return addrs

    def unmapped(self, broker_name: str, broker_addrs: Mapping[int, str]) -> Iterator[Broker]:
        """Yield the brokers of a broker name for which the view has no mapping."""
        brokers = (Broker(broker_name, broker_id, addr) for broker_id, addr in broker_addrs.items())
        return (broker for broker in brokers if self.mapped(broker) is None)


def addrs_for_clients(view: AddressView | None, broker_name: str, broker_addrs: Mapping[int, str]) -> Mapping[int, str]:
    """Return brokerId → address as clients of a view receive them; unchanged for clients without a view."""
    if view is None:
        return broker_addrs
    shown = view.addrs_for_clients(broker_name, broker_addrs)
    return {broker_id: shown[addr] for broker_id, addr in broker_addrs.items() if addr in shown}


def parse_view(name: str, document: str | bytes, number: int = 0) -> AddressView:
    """Parse the KV entry of a view; ``number`` becomes ``AddressView.number``.

    Raises:
        ValueError: The name or the document is invalid; the text names the view, the key and the problem.
    """
    try:
        if not _NAME.fullmatch(name):
            raise ValueError("expected a name of up to 64 letters, digits and . _ -")
        return _view_of(name, document, number)
    except ValueError as error:
        raise ValueError(f"address view {name[:64]!r}: {error}") from None


def _view_of(name: str, document: str | bytes, number: int) -> AddressView:
    try:
        fields = orjson.loads(document)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"the value is not JSON: {error}") from None
    _check_keys(fields, _KEYS, "")
    listeners = _texts(fields, "listeners")
    networks = tuple(_network(text) for text in _texts(fields, "networks"))
    unmapped = fields.get("unmapped", "keep")
    if unmapped not in ("keep", "omit"):
        raise ValueError("unmapped: expected keep or omit")
    mappings = fields.get("mappings", [])
    if not isinstance(mappings, list) or len(mappings) > _MAX_MAPPINGS:
        raise ValueError(f"mappings: expected a list of at most {_MAX_MAPPINGS:,} mappings")
    rules = [_mapping(f"mappings[{at}]", each) for at, each in enumerate(mappings)]
    numbers_of: dict[str, list[int]] = {"": []}
    for at, rule in enumerate(rules):
        numbers_of.setdefault(canonical_addr(rule.broker_addr), []).append(at)
    general = numbers_of.pop("")
    if len(general) > _MAX_GENERAL_MAPPINGS:
        raise ValueError(f"mappings: expected at most {_MAX_GENERAL_MAPPINGS} mappings without broker_addr")
    of_addr = {addr: tuple(rules[at] for at in sorted([*general, *own])) for addr, own in numbers_of.items()}
    mappings = tuple(rules[at] for at in general)
    return AddressView(name, number, listeners, networks, unmapped == "keep", mappings, of_addr)


def _check_keys(fields: object, known: Sequence[str], where: str) -> None:
    if not isinstance(fields, dict):
        raise ValueError(f"{where or 'the value'}: expected an object with {', '.join(known)}")
    for key in fields:
        if key not in known:
            raise ValueError(f"{where}{'.' if where else ''}{key}: unknown key; known: {', '.join(known)}")


def _texts(fields: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = fields.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
        raise ValueError(f"{key}: expected a list of strings")
    return tuple(values)


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise ValueError(f"networks: {error}") from None


def _mapping(where: str, fields: Any) -> AddressMapping:
    _check_keys(fields, _MAPPING_KEYS, where)
    values = {key: fields.get(key, "") for key in _MAPPING_KEYS}
    for key, value in values.items():
        if not isinstance(value, str) or (key in fields and not value):
            raise ValueError(f"{where}.{key}: expected a string")
    if not values["to"]:
        raise ValueError(f"{where}.to: is missing")
    try:
        return AddressMapping(values["broker_addr"], values["broker_name"], Pattern(values["to"]))
    except ValueError as error:
        raise ValueError(f"{where}.to: {error}") from None


class AddressViews:
    """All views of the KV table.

    Attributes:
        entries: The KV entries.
        number: The number that stands for clients without a view, like ``AddressView.number`` for a view.
        next_number: The first unused number.
        by_name: The valid views, by name.
        faults: Name of an invalid view → the problem. A server of another release accepted the view, or a program wrote
            it to Kafka directly.
    """

    def __init__(self, entries: Mapping[str, str] | None = None, number: int = 0) -> None:
        self.entries = dict(entries or {})
        self.number = number
        self.next_number = number + 1 + len(self.entries)
        self.by_name: dict[str, AddressView] = {}
        self.faults: dict[str, str] = {}
        for at, (name, document) in enumerate(sorted(self.entries.items()), number + 1):
            try:
                self.by_name[name] = parse_view(name, document, at)
            except ValueError as error:
                self.faults[name] = str(error)

    def view_of(self, listener: str, host: str) -> AddressView | None:
        """Return the view of a client: that of its listener, otherwise that of the smallest network with its address.

        If several views name the same listener or network, the first by name applies. None if no view does.
        """
        for view in self.by_name.values():
            if listener and listener in view.listeners:
                return view
        try:
            addr = ip_address(host) if self.by_name else None
        except ValueError:
            return None
        found = [(net.prefixlen, view) for view in self.by_name.values() for net in view.networks if addr in net]
        return max(found, key=lambda pair: pair[0], default=(0, None))[1]

    def conflict(self, view: AddressView) -> str | None:
        """Return why a view cannot be added: another one has the same listener or network; None if it can be added."""
        for other in self.by_name.values():
            taken: set[object] = {*other.listeners, *other.networks}
            shared = [str(one) for one in (*view.listeners, *view.networks) if one in taken]
            if shared and other.name != view.name:
                return f"address view {view.name!r}: {shared[0]} belongs to address view {other.name!r}"
        return None
