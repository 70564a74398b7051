"""The parameters of all rows."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from tests.bench.contenders import OURS
from tests.bench.figures import Figure, Spread

#: Seconds until the Java NameServer is fully compiled and its figures are stable.
JIT_WARM_UP_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Bench:
    """The parameters of a measurement.

    Attributes:
        program: The compiled load generator.
        rounds: Runs of each contender.
        seconds: Length of a run.
        warm_up_s: Seconds of warm-up before each run.
    """

    program: Path
    rounds: int = 5
    seconds: float = 4
    warm_up_s: float = 1.5

    @contextmanager
    def home(self) -> Iterator[Path]:
        """Yield an empty directory for one row; it is kept, with all logs, if the row fails."""
        home = Path(mkdtemp(prefix="bench-"))
        try:
            yield home
        except Exception as error:
            error.add_note(f"the logs of all processes are in {home}")
            raise
        except BaseException:
            shutil.rmtree(home)
            raise
        shutil.rmtree(home)


def of_one_run(
    row: str, name: str, value: float, goal: str = "", is_met: bool | None = None, digits: int = 0
) -> Figure:
    """Return a figure of this product alone, from a single run; see ``Figure`` for the arguments."""
    return Figure(row, name, {OURS: Spread.of([value])}, goal, is_met, digits=digits)
