"""The buffer of changes: what commits without rows cost, and what a follower may ask for."""

from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.steps import finish
from namesrv_stream.server.view.feed import ChangeFeed
from namesrv_stream.server.view.rows import Place, Position
from tests.support.builders import Log, a_registration

PARTITIONS = 16
ROWS = Log().register(a_registration())


def _rows_at(offset: int) -> list[RouteChange]:
    return [row._replace(offset=offset) for row in ROWS]


def _feed(max_rows: int) -> ChangeFeed:
    return ChangeFeed("g", dict.fromkeys(range(PARTITIONS), 0), max_rows, 1 << 30)


def test_commits_without_rows_do_not_push_rows_out_of_the_buffer() -> None:
    feed = _feed(len(ROWS) + 10)
    begin = feed.begin
    finish(feed.committed(_rows_at(0), {0: 1}))
    for offset in range(2, 10_000):
        finish(feed.committed((), dict.fromkeys(range(PARTITIONS), offset)))
    assert feed.reaches(begin)
    piece = feed.read(begin, lambda row: True, 1 << 20)
    assert (len(piece.rows), piece.is_whole, piece.position) == (len(ROWS), True, feed.end)


def test_one_read_passes_any_number_of_commits_without_rows() -> None:
    feed = _feed(1_000)
    begin = feed.begin
    for offset in range(1, 10_000):
        finish(feed.committed((), dict.fromkeys(range(PARTITIONS), offset)))
    piece = feed.read(begin, lambda row: True, 1)
    assert (piece.rows, piece.is_whole, piece.position) == ([], True, feed.end)


def test_a_follower_at_the_end_gets_the_end_of_further_commits_without_rows_and_then_their_rows() -> None:
    feed = _feed(1_000)
    finish(feed.committed((), {0: 1}))
    position, mark = feed.end, (-1, 0)
    for offset in range(2, 6):
        finish(feed.committed((), {0: offset}))
        piece = feed.read(position, lambda row: True, 1 << 20, mark)
        assert (piece.rows, piece.position) == ([], feed.end)
        position, mark = piece.position, piece.mark
    finish(feed.committed(_rows_at(5), {0: 6}))
    piece = feed.read(position, lambda row: True, 1 << 20, mark)
    assert (len(piece.rows), piece.position) == (len(ROWS), feed.end)


def test_a_read_of_many_commits_that_are_not_wanted_is_limited() -> None:
    feed, reads = _feed(100_000), 0
    position = feed.begin
    for offset in range(2_000):
        finish(feed.committed(_rows_at(offset), {0: offset + 1}))
    while position != feed.end:
        before = position
        piece = feed.read(position, lambda row: False, 100_000)
        position = piece.position
        assert position.place(0).offset - before.place(0).offset <= 100_000 // 300 + 1
        reads += 1
    assert reads > 5


def test_positions_with_different_numbers_of_places_are_compared() -> None:
    short, long = Position("g", (Place(3, 0),)), Position("g", (Place(3, 0), Place(0, 0)))
    assert short.covers(long)
    assert long.covers(short)
    assert not short.covers(Position("g", (Place(3, 0), Place(0, 1))))
    assert Position("g", (Place(3, 0), Place(9, 9))).covers(long)
