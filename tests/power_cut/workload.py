"""The process whose writes are recorded: the job folds a random log with very frequent writes of every kind."""

import random
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.power_cut import product
from tests.power_cut.made_up_log import made_up_log
from tests.power_cut.recording import COVERED, DURABLE, say

_BATCHES_A_COMPACTION: Final = 5
_COMPACTIONS_A_CLEAN_UP: Final = 5


def _compact(job: product.Job, states: product.FoldStates) -> None:
    job.compact(states)
    say(COVERED, {partition: state.next_offset for partition, state in states.items()})


def run(data_dir: Path, seed: int, records: int) -> None:
    """Fold the whole log of a seed; marks in the trace say which offsets the product considers durable."""
    settings = product.settings_in(data_dir)
    log = made_up_log(seed, records)
    draw = random.Random(f"batches {seed}")
    job = product.Job(settings, log, dict.fromkeys(log, 0))
    compactions: list[Future[None]] = []
    with ThreadPoolExecutor(max_workers=1) as compaction:  # concurrently with the batches, as in the product
        batches = 0
        while not job.is_done:
            job.run_batch({partition: draw.randint(0, 6) for partition in log})
            say(DURABLE, job.durable_offsets())
            batches += 1
            if batches % _BATCHES_A_COMPACTION == 0:
                compactions.append(compaction.submit(_compact, job, job.fold_states()))
            if batches % (_BATCHES_A_COMPACTION * _COMPACTIONS_A_CLEAN_UP) == 0:
                compactions.append(compaction.submit(job.clean_up))
            if draw.random() < 0.5:  # otherwise batches continue meanwhile
                for future in compactions:
                    future.result()
    for future in compactions:
        future.result()


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
