"""The figures of the job in the metadata of a commit."""

import pytest

from namesrv_stream.tables.job_commits import BATCH_BOUNDS_MS, JobFigures, decode_job_figures, encode_job_figures

FIGURES = JobFigures(1, 2, 3, 4, tuple(range(len(BATCH_BOUNDS_MS) + 1)), 5)
_SHORT = encode_job_figures(FIGURES)["namesrv_stream.job"].replace("0,1,", "")


def test_figures_are_read_as_they_were_written() -> None:
    assert decode_job_figures(encode_job_figures(FIGURES)) == FIGURES


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}", '{"started_ms":"x"}', _SHORT])
def test_figures_of_another_release_are_ignored(text: str) -> None:
    assert decode_job_figures({"namesrv_stream.job": text}) is None


def test_commit_of_another_writer_has_no_figures() -> None:
    assert decode_job_figures({"operation": "OPTIMIZE"}) is None
