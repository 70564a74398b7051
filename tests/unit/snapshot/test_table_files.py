"""A file that is made once; what an object store's failures say: the same each time, and nothing secret."""

import threading
from pathlib import Path

import pytest

from namesrv_stream.snapshot.table_files import create_file, one_line

_DELTA_RS = (
    "Kernel error\n -> Generic S3 error\n           \x1b[31m↳\x1b[0m Error performing GET https://s3.example/tables/x"
    " in {elapsed}, after {retries} retries, max_retries\n            \x1b[31m↳\x1b[0m 3, retry_timeout"
    "\n             \x1b[31m↳\x1b[0m 10s  - Server returned non-2xx status code \x1b[31m↳\x1b[0m 400 Bad Request"
    ' \x1b[31m↳\x1b[0m <?xml version="1.0"?>\n<Error><Code>ExpiredToken</Code><Token-0>Tr0ub4dor</Token-0></Error>'
)
_OBSTORE = (
    "Generic S3 error: Error performing GET https://s3.example/tables/x in {elapsed}, after {retries} retries,"
    " max_retries: 3, retry_timeout: 10s - Server returned non-2xx status code: 403 Forbidden:"
    " <Error><Code>InvalidAccessKeyId</Code><AWSAccessKeyId>Tr0ub4dor</AWSAccessKeyId></Error>"
    '\n\nDebug source:\nGeneric {{ source: "Tr0ub4dor" }}'
)


@pytest.mark.parametrize(("text", "code"), [(_DELTA_RS, "ExpiredToken"), (_OBSTORE, "InvalidAccessKeyId")])
def test_the_same_failure_says_the_same_however_long_it_took(text: str, code: str) -> None:
    once = one_line(OSError(text.format(elapsed="47.224946ms", retries=2)))
    assert once == one_line(OSError(text.format(elapsed="30.001s", retries=3)))
    assert once.endswith(f": {code}")
    assert "https://s3.example/tables/x - Server returned" in once


@pytest.mark.parametrize(
    "text",
    [
        _DELTA_RS,
        _OBSTORE,
        "Error performing GET http://user:Tr0ub4dor@127.0.0.1:1/tables in 5ms - HTTP error: error sending request",
        "Server returned non-2xx status code: 400 Bad Request: <Error><Token-0>Tr0ub4dor",
    ],
)
def test_no_secret_is_told_that_an_address_or_an_answer_repeats(text: str) -> None:
    assert "Tr0ub4dor" not in one_line(OSError(text))


def test_what_says_nothing_is_told_by_its_name() -> None:
    assert one_line(OSError()) == "OSError"


def test_of_those_who_create_a_file_one_does_and_readers_see_it_whole(tmp_path: Path) -> None:
    path, writers = tmp_path / "00000000000000000001.json", 8
    together, outcomes = threading.Barrier(writers), list[str]()

    def create(content: bytes) -> None:
        together.wait()
        try:
            create_file(path, content)
            outcomes.append("made")
        except FileExistsError:
            outcomes.append("refused")

    threads = [threading.Thread(target=create, args=(str(n).encode() * 100_000,)) for n in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["made"] + ["refused"] * (writers - 1)
    assert len(path.read_bytes()) == 100_000
    assert len(set(path.read_bytes())) == 1
    assert list(tmp_path.iterdir()) == [path]
