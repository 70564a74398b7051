"""Where tables may be, and what is shown of it."""

from pathlib import Path

import pytest

from namesrv_stream.location import ObjectPath, object_path
from namesrv_stream.tables import table_path


@pytest.mark.parametrize("address", ["tables", "/srv/tables", "./s3/tables", "s3:/tables", "C:tables"])
def test_what_names_no_store_is_a_folder(address: str) -> None:
    assert object_path(address, {}) is None


@pytest.mark.parametrize(
    ("address", "bucket", "key"),
    [
        ("s3://tables", "tables", ""),
        ("s3://tables/", "tables", ""),
        ("s3://my.bucket-1/a/fleet", "my.bucket-1", "a/fleet"),
        ("s3://my.bucket-1/a/fleet/", "my.bucket-1", "a/fleet"),
        ("s3://abc/date=2026-11-22/x_y", "abc", "date=2026-11-22/x_y"),
    ],
)
def test_a_bucket_and_a_prefix(address: str, bucket: str, key: str) -> None:
    found = object_path(address, {})
    assert found == ObjectPath(bucket, key)
    assert str(found) == address.rstrip("/")


@pytest.mark.parametrize(
    "address",
    [
        "s3://",
        "s3:///tables",
        "s3://ab/tables",
        "s3://Tables/x",
        "s3://tables//x",
        "s3://tables/../x",
        "s3://tables/a fleet",
        "s3://tables/a*",
        "s3://tables?x=1",
        "s3://key:Tr0ub4dor@tables/x",
        "s3a://tables/x",
        "gs://tables/x",
        "https://tables.s3.amazonaws.com/x",
        "file:///srv/tables",
    ],
)
def test_what_is_no_place_is_refused_without_showing_it(address: str) -> None:
    with pytest.raises(ValueError, match="s3://BUCKET/PREFIX") as refusal:
        object_path(address, {})
    assert "Tr0ub4dor" not in str(refusal.value)


def test_tables_and_their_files_are_below_it() -> None:
    tables = ObjectPath("tables", "a/fleet")
    table = table_path(tables, "route_changes")
    assert str(table / "_delta_log") == "s3://tables/a/fleet/route_changes/_delta_log"
    assert (table / "_delta_log").name == "_delta_log"
    assert str(ObjectPath("tables", "") / "x") == "s3://tables/x"
    assert table_path(Path("tables"), "x") == Path("tables/x")


def test_options_have_names_in_capitals_and_text_as_values_in_one_order() -> None:
    given = {"aws_region": "eu", "AWS_ALLOW_HTTP": True, "aws_max": 5}
    found = object_path("s3://tables", given)
    assert found is not None
    assert found.options == (("AWS_ALLOW_HTTP", "true"), ("AWS_MAX", "5"), ("AWS_REGION", "eu"))
    assert object_path("s3://tables", dict(reversed(given.items()))) == found


def test_no_option_is_shown() -> None:
    found = object_path("s3://tables", {"AWS_SECRET_ACCESS_KEY": "Tr0ub4dor"})
    assert "Tr0ub4dor" not in f"{found} {found!r}"


@pytest.mark.parametrize(("url", "is_plain"), [("http://127.0.0.1:9000", True), ("https://store.example", False)])
def test_an_endpoint_that_says_http_means_it(url: str, is_plain: bool) -> None:
    found = object_path("s3://tables", {"aws_endpoint_url": url})
    assert found is not None
    assert found.is_plain_http == is_plain
