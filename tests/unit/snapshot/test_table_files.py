"""What an object store's failures say: the same each time, and nothing that is nobody's business."""

import pytest

from namesrv_stream.snapshot.table_files import one_line

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
