"""Places of tables and their representation; files are written once, atomically and durably."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from namesrv_stream.settings.values import DataSettings
from namesrv_stream.tables.storage import CommitWatch, Folder, ObjectStore, one_line, tables_of
from namesrv_stream.tables.storage import interface as watch_module
from tests.support.tables import settings_in


def _store(address: str, **extra: bool | int | str) -> ObjectStore:
    settings = settings_in(Path("unused"))
    data = settings.data.model_copy(update={"tables": address, "extra": extra})
    found = tables_of(settings.model_copy(update={"data": data}))
    assert isinstance(found, ObjectStore)
    return found


@pytest.mark.parametrize("address", ["tables", "/srv/tables", "./s3/tables", "s3:/tables", "C:tables"])
def test_path_without_a_scheme_is_a_folder(address: str) -> None:
    assert DataSettings(tables=address).store is None
    assert DataSettings(tables=address).tables_dir == Path(address)


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
    assert DataSettings(tables=address).store == (bucket, key)
    assert str(_store(address)) == address.rstrip("/")


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
def test_invalid_place_is_refused_without_showing_it(address: str) -> None:
    with pytest.raises(ValueError, match="s3://BUCKET/PREFIX") as refusal:
        _ = DataSettings(tables=address).store
    assert "Tr0ub4dor" not in str(refusal.value)


def test_a_name_is_appended_to_the_place_of_the_tables() -> None:
    assert str(_store("s3://tables/a/fleet") / "route_changes") == "s3://tables/a/fleet/route_changes"
    assert str(_store("s3://tables") / "x") == "s3://tables/x"
    assert str(Folder(Path("tables")) / "x") == "tables/x"


def test_options_have_upper_case_names_and_text_values_and_are_sorted() -> None:
    found = _store("s3://tables", aws_region="eu", AWS_ALLOW_HTTP=True, aws_max=5)
    assert found.options == (("AWS_ALLOW_HTTP", "true"), ("AWS_MAX", "5"), ("AWS_REGION", "eu"))


def test_no_option_is_shown() -> None:
    found = _store("s3://tables", AWS_SECRET_ACCESS_KEY="Tr0ub4dor")
    assert "Tr0ub4dor" not in f"{found} {found!r}"


@pytest.mark.parametrize(("url", "is_plain"), [("http://127.0.0.1:9000", True), ("https://store.example", False)])
def test_endpoint_with_http_allows_http(url: str, is_plain: bool) -> None:
    assert _store("s3://tables", aws_endpoint_url=url).is_plain_http == is_plain


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
def test_the_text_of_a_failure_contains_no_duration_and_no_number_of_retries(text: str, code: str) -> None:
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
def test_secrets_in_an_address_or_an_answer_are_not_shown(text: str) -> None:
    assert "Tr0ub4dor" not in one_line(OSError(text))


def test_an_error_without_text_is_shown_by_its_name() -> None:
    assert one_line(OSError()) == "OSError"


def test_concurrent_creation_of_a_file_succeeds_once_and_is_atomic(tmp_path: Path) -> None:
    folder, name, writers = Folder(tmp_path), "00000000000000000001.json", 8
    together, outcomes = threading.Barrier(writers), list[str]()

    def create(content: bytes) -> None:
        together.wait()
        try:
            folder.create(name, content)
            outcomes.append("made")
        except FileExistsError:
            outcomes.append("refused")

    threads = [threading.Thread(target=create, args=(str(n).encode() * 100_000,)) for n in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["made"] + ["refused"] * (writers - 1)
    assert len(folder.read(name)) == 100_000
    assert len(set(folder.read(name))) == 1
    assert folder.sizes() == {name: 100_000}


def test_a_file_and_its_folder_are_synced_before_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    Folder(tmp_path).create("a", b"1")
    staged, folder = synced
    assert Path(staged).parent == tmp_path
    assert folder == str(tmp_path)


@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_folder_is_moved_and_a_repeated_move_changes_nothing(tmp_path: Path, is_repeated: bool) -> None:
    place = Folder(tmp_path)
    (place / "old").make()
    (place / "old").write("a", b"1")
    place.move("old", "new/place")
    if is_repeated:
        place.move("old", "new/place")
    assert (place / "new" / "place").read("a") == b"1"
    assert not place.has("old")


_LONG_S = 60.0
_SOON_S = 20.0


def _put(folder: Path, name: str = "a") -> None:
    (folder / f".{name}").write_bytes(b"x")
    (folder / f".{name}").rename(folder / name)


def _waits(watch: CommitWatch) -> float:
    began_s = time.monotonic()
    watch.wait()
    return time.monotonic() - began_s


@pytest.mark.parametrize("put", [_put, lambda folder: os.link(__file__, folder / "linked")], ids=["moved", "linked"])
def test_new_file_ends_the_wait(tmp_path: Path, put: Callable[[Path], None]) -> None:
    with CommitWatch(tmp_path, _LONG_S) as watch:
        watch.begin()
        later = threading.Timer(0.05, put, [tmp_path])
        later.start()
        assert _waits(watch) < _SOON_S
        later.join()


def test_a_file_created_before_the_wait_ends_the_wait(tmp_path: Path) -> None:
    with CommitWatch(tmp_path, _LONG_S) as watch:
        watch.begin()
        _put(tmp_path)
        assert _waits(watch) < _SOON_S


def test_one_file_ends_only_one_wait(tmp_path: Path) -> None:
    with CommitWatch(tmp_path, 0.05) as watch:
        watch.begin()
        _put(tmp_path)
        watch.wait()
        assert _waits(watch) >= 0.05


def test_a_folder_that_is_created_later_is_watched_from_then_on(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with CommitWatch(folder, _LONG_S) as watch:
        watch.begin()
        folder.mkdir()
        watch.begin()
        _put(folder)
        assert _waits(watch) < _SOON_S


def test_another_folder_at_the_same_place_is_watched(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    with CommitWatch(folder, _LONG_S) as watch:
        watch.begin()
        folder.rename(tmp_path / "old")
        folder.mkdir()
        watch.begin()
        _put(folder)
        assert _waits(watch) < _SOON_S


def test_another_table_at_the_same_place_is_watched(tmp_path: Path) -> None:
    """A rebuild renames the folder above; watches inside the folder do not notice that."""
    for name in ("table", "rebuilt"):
        (tmp_path / name / "log").mkdir(parents=True)
    with CommitWatch(tmp_path / "table" / "log", _LONG_S) as watch:
        watch.begin()
        (tmp_path / "table").rename(tmp_path / "old")
        (tmp_path / "rebuilt").rename(tmp_path / "table")
        watch.begin()
        _put(tmp_path / "table" / "log")
        assert _waits(watch) < _SOON_S


def test_waking_the_watch_ends_all_waits(tmp_path: Path) -> None:
    with CommitWatch(tmp_path, _LONG_S) as watch:
        watch.wake()
        assert _waits(watch) + _waits(watch) < _SOON_S
    watch.wake()  # after the watch was closed


def test_without_inotify_the_watch_waits_for_its_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: bool) -> None:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(watch_module, "INotify", refuse)
    with CommitWatch(tmp_path, 0.05) as watch:
        watch.begin()
        _put(tmp_path)
        assert _waits(watch) >= 0.05
