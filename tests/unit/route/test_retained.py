"""A kept registration says what was registered, read or unread."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.route.model import Registration
from namesrv_stream.route.registration_json import encode_registration
from namesrv_stream.route.retained import RetainedRegistration, retained
from tests.support.builders import READ_ONLY, RW, a_registration
from tests.support.strategies_route import registrations


def _unread(registration: Registration) -> RetainedRegistration:
    text = encode_registration(registration)
    return RetainedRegistration(registration.registration_hash, registration.broker_id, text)


@given(registrations())
def test_an_unread_registration_is_what_was_registered(registration: Registration) -> None:
    assert _unread(registration).read() == registration
    assert _unread(registration) == retained(registration)


@given(st.lists(registrations(), min_size=2, max_size=2))
def test_two_are_equal_exactly_when_they_say_the_same(pair: list[Registration]) -> None:
    one, other = (replace(registration, registration_hash="same") for registration in pair)
    for left in (retained(one), _unread(one)):
        for right in (retained(other), _unread(other)):
            assert (left == right) is (one == other)


def test_the_order_of_topics_says_nothing() -> None:
    one = a_registration(topics={"a": RW, "b": READ_ONLY})
    other = a_registration(topics={"b": READ_ONLY, "a": RW})
    assert _unread(one) == _unread(other)


def test_once_written_only_the_text_is_kept() -> None:
    registration = a_registration()
    kept = retained(registration)
    assert kept.read() is registration
    assert kept.text == encode_registration(registration)
    assert kept.read() is not registration
