"""Counts in sentences: ``1 broker``, ``2 brokers``, ``1,024 files``."""


def counted(count: int, one: str, several: str | None = None) -> str:
    """A number with its noun.

    Args:
        count: How many.
        one: The noun for one.
        several: The noun for any other number; by default ``one`` with an "s".
    """
    return f"{count:,} {plural(count, one, several)}"


def plural(count: int, one: str, several: str | None = None) -> str:
    """The noun, or the verb, that agrees with a number."""
    return one if count == 1 else (f"{one}s" if several is None else several)


def times(count: int) -> str:
    """How often: ``once``, ``12 times``."""
    return "once" if count == 1 else f"{count:,} times"
