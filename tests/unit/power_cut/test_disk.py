"""The model of a disk: what a power cut may leave, and what it may not."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

from tests.power_cut.disk import Data, Disk, Image, Names, PowerCut, draw_cut, image_after, read_image, write_image
from tests.power_cut.trace import Kind, Operation

_ROOT, _FOLDER, _FILE, _OTHER = 1, 2, 3, 4
_BEGIN = Operation(Kind.BEGIN, _ROOT)
_SYNC_ROOT = Operation(Kind.SYNC, _ROOT)
_SYNC_FILE = Operation(Kind.SYNC, _FILE)


def _create(path: str, inode: int = _FILE) -> Operation:
    return Operation(Kind.CREATE, inode, path=path)


def _write(data: bytes, offset: int = 0, inode: int = _FILE) -> Operation:
    return Operation(Kind.WRITE, inode, offset, data)


def _images(operations: Sequence[Operation], names: Names | None = None, written_back: int = 0) -> list[Image]:
    """Return the different directories that many cuts at the end of the operations leave."""
    images: list[Image] = []
    for seed, some, data in product(range(40), (names,) if names else Names, (*Data, None)):
        cut = PowerCut(len(operations), seed, written_back, some, data, is_log_trimmed=False)
        image = image_after(operations, cut)
        if image not in images:
            images.append(image)
    return images


def test_unsynced_data_may_be_absent_truncated_zeroed_or_complete() -> None:
    contents = [image["f"] for image in _images([_BEGIN, _create("f"), _write(b"abcdef")], Names.ALL)]
    assert {b"", b"abc", bytes(6), b"abcdef"} < set(contents)
    assert all(content is not None and b"abcdef".startswith(content.rstrip(b"\0")) for content in contents)


def test_pages_survive_independently() -> None:
    contents = [image["f"] for image in _images([_BEGIN, _create("f"), _write(b"x" * 4_096 + b"y" * 4)], Names.ALL)]
    assert bytes(4_096) + b"y" * 4 in contents
    assert b"x" * 4_096 + bytes(4) in contents


def test_synced_data_survives_and_later_data_may_not() -> None:
    images = _images([_BEGIN, _create("f"), _write(b"abc"), _SYNC_FILE, _write(b"def", 3)], Names.ALL)
    contents = [image["f"] for image in images]
    assert {b"abc", b"abcdef", b"abc\0\0\0"} < set(contents)
    assert all(content is not None and content.startswith(b"abc") for content in contents)


def test_syncing_a_file_keeps_its_data_but_not_its_name() -> None:
    images = _images([_BEGIN, _create("f"), _write(b"abc"), _SYNC_FILE])
    assert images == [{}, {"f": b"abc"}] or images == [{"f": b"abc"}, {}]


def test_syncing_a_directory_keeps_its_names_but_not_the_data() -> None:
    images = _images([_BEGIN, _create("f"), _write(b"abc"), _SYNC_ROOT])
    assert {"f": b""} in images
    assert all("f" in image for image in images)


def test_new_names_survive_in_the_order_of_their_creation() -> None:
    operations = [_BEGIN, *(_create(f"f{n}", 10 + n) for n in range(4))]
    counts = {tuple(image) for image in _images(operations)}
    assert counts == {tuple(f"f{n}" for n in range(size)) for size in range(5)}


def test_syncing_a_directory_keeps_all_changes_before_its_newest_one() -> None:
    operations = [
        _BEGIN,
        Operation(Kind.MAKE_DIRECTORY, _FOLDER, path="d"),
        _create("f"),
        _create("d/g", _OTHER),
        _create("h", 5),
        Operation(Kind.SYNC, _FOLDER),
    ]
    names = {tuple(image) for image in _images(operations)}
    assert names == {("d", "f", "d/g"), ("d", "f", "d/g", "h")}


def test_a_replaced_file_is_the_old_or_the_new_one() -> None:
    operations = [
        _BEGIN,
        _create("f"),
        _write(b"old"),
        _SYNC_FILE,
        _SYNC_ROOT,
        _create("draft", _OTHER),
        _write(b"new", inode=_OTHER),
        Operation(Kind.SYNC, _OTHER),
        Operation(Kind.RENAME, path="draft", target="f"),
    ]
    assert {image["f"] for image in _images(operations)} == {b"old", b"new"}


def test_a_truncation_may_survive_without_the_data_written_after_it() -> None:
    truncate = Operation(Kind.TRUNCATE, _FILE, 0)
    operations = [_BEGIN, _create("f"), _write(b"old"), _SYNC_FILE, _SYNC_ROOT, truncate, _write(b"newer")]
    assert {b"", b"old", b"newer"} < {image["f"] for image in _images(operations)}


def test_links_share_their_data() -> None:
    operations = [
        _BEGIN,
        _create("draft"),
        _write(b"abc"),
        Operation(Kind.LINK, _FILE, path="f"),
        Operation(Kind.REMOVE, path="draft"),
        _SYNC_FILE,
        _SYNC_ROOT,
    ]
    assert _images(operations) == [{"f": b"abc"}]


def test_renamed_directory_keeps_its_files() -> None:
    folder = Operation(Kind.MAKE_DIRECTORY, _FOLDER, path="d")
    rename = Operation(Kind.RENAME, path="d", target="e")
    images = _images([_BEGIN, folder, _create("d/f"), rename, Operation(Kind.SYNC)])
    assert images == [{"e": None, "e/f": b""}]


def test_reused_inode_number_begins_a_new_file() -> None:
    remove = Operation(Kind.REMOVE, path="f")
    operations = [_BEGIN, _create("f"), _write(b"old"), _SYNC_FILE, remove, _create("g"), _SYNC_ROOT]
    assert _images(operations) == [{"g": b""}]


def test_written_back_data_counts_as_synced() -> None:
    operations = [_BEGIN, _create("f"), _write(b"abc"), _create("g", _OTHER)]
    assert all(image["f"] == b"abc" for image in _images(operations, written_back=3))


@pytest.mark.parametrize("position", range(4))
def test_the_same_cut_leaves_the_same_directory(position: int) -> None:
    operations = [_BEGIN, _create("f"), _write(b"abcdefgh"), _create("g", _OTHER)]
    assert draw_cut(position, 7) == draw_cut(position, 7)
    assert image_after(operations, draw_cut(position, 7)) == image_after(operations, draw_cut(position, 7))


def test_an_image_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    image: Image = {"d": None, "d/f": b"abc", "empty": b""}
    write_image(image, tmp_path)
    assert read_image(tmp_path) == image


def test_process_sees_all_its_own_changes() -> None:
    disk = Disk()
    for operation in (_BEGIN, _create("f"), _write(b"abc"), _write(b"x", 5)):
        disk.apply(operation)
    assert disk.image() == {"f": b"abc\0\0x"}
