"""Findings of the doctor about the machine; the tests create each fault."""

import os
import pickle
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from namesrv_stream.jvm import foreign_variables
from namesrv_stream.settings import Settings, load_settings
from namesrv_stream.settings.layers import Flag
from namesrv_stream.tools.doctor import machine
from namesrv_stream.tools.doctor.finding import Finding, Grade


def _settings(tmp_path: Path, **values: str) -> Settings:
    flags = [Flag("test", key.replace("__", "."), value) for key, value in values.items()]
    return load_settings(environ={}, flags=[Flag("test", "data.dir", str(tmp_path)), *flags]).settings


@pytest.fixture
def few_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_files")
def test_fewer_open_files_than_connections_are_a_warning_with_the_number_needed(tmp_path: Path) -> None:
    found = machine.open_files(_settings(tmp_path, remoting__max_connections="1000"))
    assert found.grade is Grade.WARNING
    assert "2512" in found.text


@pytest.mark.usefixtures("few_files")
def test_enough_open_files_are_fine(tmp_path: Path) -> None:
    settings = _settings(tmp_path, remoting__max_connections="100", http__max_connections="100")
    assert machine.open_files(settings).grade is Grade.FINE


def test_heaps_that_do_not_fit_are_a_warning(tmp_path: Path) -> None:
    assert machine.memory(_settings(tmp_path), None).grade is Grade.FINE
    assert machine.memory(_settings(tmp_path, streaming__driver_memory="9000g"), None).grade is Grade.WARNING


def test_the_heap_of_embedded_kafka_is_not_counted_with_an_external_kafka(tmp_path: Path) -> None:
    outside = {"embedded_kafka__heap": "9000g", "kafka__bootstrap_servers": "k:9092"}
    assert machine.memory(_settings(tmp_path, **outside), None).grade is Grade.FINE


@pytest.mark.parametrize(
    ("master", "home", "grade"),
    [("local[2]", "/nowhere", Grade.FINE), ("yarn", "/nowhere", Grade.FAULT), ("yarn", None, Grade.NOTE)],
)
def test_variables_of_other_programs_are_a_fault_only_if_spark_reads_them_and_cannot_start(
    master: str, home: str | None, grade: Grade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in foreign_variables(os.environ):
        monkeypatch.delenv(name)
    settings = _settings(tmp_path, streaming__master=master)
    assert list(machine.environment(settings)) == []
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    if home is not None:
        monkeypatch.setenv("SPARK_HOME", home)
    (found,) = machine.environment(settings)
    assert found.grade is grade
    assert ("SPARK_HOME" if home else "HADOOP_CONF_DIR") in found.text


def test_missing_jars_are_a_fault_that_says_how_to_get_them(tmp_path: Path) -> None:
    found = {f.area: f for f in machine.java_and_jars(_settings(tmp_path, jars__spark_dir=str(tmp_path)))}
    assert found["Spark's jars"].grade is Grade.FAULT
    assert "make setup" in found["Spark's jars"].remedy


def test_a_java_home_without_java_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert next(machine.java_and_jars(_settings(tmp_path))).grade is Grade.FAULT


def test_a_machine_that_only_runs_servers_needs_neither_java_nor_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    settings = _settings(tmp_path, jars__spark_dir=str(tmp_path), kafka__bootstrap_servers="k:9092")
    found = list(machine.java_and_jars(settings))
    assert [(f.area, f.grade) for f in found] == [("Java", Grade.NOTE), ("Spark's jars", Grade.NOTE)]
    assert all("enough for a server" in f.text for f in found)
    monkeypatch.setattr(machine, "running_parts", lambda _run_dir: {"job": {}})
    assert {f.grade for f in machine.java_and_jars(settings)} == {Grade.FAULT}


def test_missing_directory_is_checked_at_its_parent(tmp_path: Path) -> None:
    (found,) = machine.disk(_settings(tmp_path / "not" / "yet"))
    assert found.grade is not Grade.FAULT


def test_a_directory_that_cannot_be_written_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()  # not even root can create a directory below a file
    (found,) = machine.disk(_settings(tmp_path / "file" / "data"))
    assert found.grade is Grade.FAULT


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that other users can reach."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


def _disk_without_privileges(settings: Settings) -> list[Finding]:
    """Return the findings for a user who is not root, so that permissions apply."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65_534)
                os.setuid(65_534)
            os.write(writer, pickle.dumps(list(machine.disk(settings))))
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        found: list[Finding] = pickle.load(answer)
    os.waitpid(child, 0)
    return found


def test_read_only_tables_are_sufficient_for_a_server(public_folder: Path) -> None:
    tables = public_folder / "tables"
    tables.mkdir(mode=0o555)
    of_data, of_tables = _disk_without_privileges(_settings(public_folder, data__tables=str(tables)))
    assert of_data.grade is not Grade.FAULT
    assert of_tables.grade is Grade.NOTE
    assert "enough for a server" in of_tables.text


def test_tables_that_cannot_be_read_are_a_fault(public_folder: Path) -> None:
    tables = public_folder / "tables"
    tables.mkdir(mode=0o300)
    assert _disk_without_privileges(_settings(public_folder, data__tables=str(tables)))[1].grade is Grade.FAULT


def test_missing_tables_that_cannot_be_created_are_a_fault(public_folder: Path) -> None:
    closed = public_folder / "closed"
    closed.mkdir(mode=0o555)
    tables = str(closed / "tables")
    assert _disk_without_privileges(_settings(public_folder, data__tables=tables))[1].grade is Grade.FAULT


def test_clock_state_of_the_kernel_is_reported() -> None:
    assert machine.clock_sync().area == "clock"
    assert machine.clock_sync().grade in (Grade.FINE, Grade.NOTE)


def test_memory_too_small_for_all_parts_is_only_a_note_because_a_container_may_run_one_part(tmp_path: Path) -> None:
    assert machine.memory(_settings(tmp_path), 1 << 30).grade is Grade.NOTE


def test_every_file_that_a_setting_names_is_checked(tmp_path: Path) -> None:
    keys = ("admin.accounts_file", "tls.key_file", "webhook.url_file", "kafka.extra.sasl_plain_password_file")
    here, absent = tmp_path / "here", tmp_path / "absent"
    here.touch()
    for missing in keys:
        values = {key.replace(".", "__"): str(absent if key == missing else here) for key in keys}
        found = list(machine.files(_settings(tmp_path, tls__cert_file=str(here), **values)))
        assert [(f.grade, f.text) for f in found] == [
            (Grade.FAULT, f"{missing} = {absent}: No such file or directory"),
        ]


def test_files_are_checked_as_the_server_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "accounts"
    assert list(machine.files(_settings(tmp_path))) == []
    file.write_text("operator=secret\n")
    settings = _settings(tmp_path, admin__accounts_file=str(file))
    assert [f.grade for f in machine.files(settings)] == [Grade.FINE]
    file.write_text("operator\n")
    (found,) = machine.files(settings)
    assert (found.grade, "is not an account" in found.text) == (Grade.FAULT, True)
