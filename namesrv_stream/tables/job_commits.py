"""When the job committed what: from the commits of ``route_changes`` that Delta's log still has, a day's."""

from collections.abc import Mapping
from dataclasses import dataclass

from namesrv_stream.tables.delta.commit import commit_versions, read_commit
from namesrv_stream.tables.delta.stored_table import StoredTable
from namesrv_stream.tables.schema.layout import TOPIC_ID_PROPERTY, app_id, partition_of_app_id


@dataclass(frozen=True, slots=True)
class JobCommit:
    """One commit of the job.

    Attributes:
        at_ms: By the job's clock, epoch milliseconds.
        next_offsets: partition that advanced → first offset that is not in the table.
    """

    at_ms: int
    next_offsets: Mapping[int, int]


def job_commits(table: StoredTable, after_ms: int) -> list[JobCommit]:
    """The commits of the job, as far back as Delta's log has them and one more than asked for, by time; blocks.

    Raises:
        TableDamaged: A commit is damaged.
        StoreUnreachable: The object store does not answer.
    """
    topic_id = table.properties.get(TOPIC_ID_PROPERTY, "")
    found: list[JobCommit] = []
    for version in reversed(commit_versions(table.storage)):
        commit = read_commit(table.storage, version)
        if commit is None:  # the job cleans up
            continue
        partitions = {name: partition_of_app_id(name) for name in commit.transactions}
        offsets = {
            p: commit.transactions[name]
            for name, p in partitions.items()
            if p is not None and name == app_id(topic_id, p)
        }
        if offsets:
            found.append(JobCommit(int(commit.info.get("timestamp", 0)), offsets))
            if found[-1].at_ms <= after_ms:
                break
    return found[::-1]
