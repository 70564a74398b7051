"""A broker's last accepted registration, as it is kept: as JSON until somebody asks what it says.

It is wanted again where a broker returns by its hash alone. Until then the text, which came with a row or goes into
one, takes a third of the memory; to read it takes a microsecond a topic.
"""

from namesrv_stream.route.model import Registration
from namesrv_stream.route.registration_json import decode_registration, encode_registration


class RetainedRegistration:
    """What a registration said.

    Attributes:
        registration_hash: Its hash.
        broker_id: Its brokerId.

    Args:
        registration_hash: Its hash.
        broker_id: Its brokerId.
        said: The registration, or its text as ``registration_json`` writes it.
    """

    __slots__ = ("_said", "broker_id", "registration_hash")

    def __init__(self, registration_hash: str, broker_id: int, said: Registration | str) -> None:
        self.registration_hash = registration_hash
        self.broker_id = broker_id
        self._said = said

    @property
    def text(self) -> str:
        """As ``registration_json`` writes it; once written, nothing else is kept."""
        if not isinstance(self._said, str):
            self._said = encode_registration(self._said)
        return self._said

    def read(self) -> Registration:
        """What it says.

        Raises:
            EventDecodeError: The text is none of ours.
        """
        return decode_registration(self._said) if isinstance(self._said, str) else self._said

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RetainedRegistration):
            return NotImplemented
        if self is other:
            return True
        if (self.registration_hash, self.broker_id) != (other.registration_hash, other.broker_id):
            return False
        return self.text == other.text or self.read() == other.read()  # two orders of topics say the same

    __hash__ = None  # type: ignore[assignment] # as of all that is compared by what it says

    def __repr__(self) -> str:
        return f"RetainedRegistration({self.read()!r})"


def retained(registration: Registration) -> RetainedRegistration:
    """What is kept of a registration."""
    return RetainedRegistration(registration.registration_hash, registration.broker_id, registration)
