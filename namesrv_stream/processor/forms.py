"""What is kept of requests by their form: the bytes that those which differ in some numbers only have in common."""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

#: Of one connection; a container of brokers has some. All are forgotten at more.
_MAX_KEPT: Final = 64


class Forms(Generic[T]):
    """Of each owner one form, the last: what a broker said before it will hardly say again."""

    def __init__(self, max_kept: int = _MAX_KEPT) -> None:
        self._max_kept = max_kept
        self._kept: dict[bytes, T] = {}
        self._form_of: dict[Hashable, bytes] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, form: bytes) -> T | None:
        """What is kept of it."""
        return self._kept.get(form)

    def put(self, form: bytes, owner: Hashable, kept: T) -> None:
        """Keep something of a form of ``owner``'s."""
        before = self._form_of.pop(owner, None)
        if before is not None:
            self._kept.pop(before, None)
        if len(self._kept) >= self._max_kept:
            self._kept.clear()
            self._form_of.clear()
        self._kept[form] = kept
        self._form_of[owner] = form
