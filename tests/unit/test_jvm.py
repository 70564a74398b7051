"""Variables that do not reach a JVM, and the reason for its end in its output."""

from importlib import metadata
from pathlib import Path

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.jvm import check_cluster_variables, foreign_variables, is_one_process, jvm_environment, last_failure


def test_variables_of_other_programs_do_not_reach_a_jvm() -> None:
    ours = {"PATH": "/bin", "JAVA_HOME": "/java", "HOME": "/root", "SPARK_SUBMIT_OPTS": "-Dours=1", "SPARKLE": "1"}
    theirs = {"SPARK_HOME": "", "HADOOP_CONF_DIR": "", "_JAVA_OPTIONS": "", "_PYSPARK_X": "", "CLASSPATH": ""}
    assert foreign_variables(ours | theirs) == sorted(theirs)
    assert jvm_environment(ours | theirs) == ours


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", ""),
        ("2026-11-30 WARN slow\nerror: the port is in use\n", "error: the port is in use"),
        (  # Java 17 with -Xmx999999g
            "Error occurred during initialization of VM\nCould not reserve enough space for 1048574951KB object heap",
            "Could not reserve enough space for 1048574951KB object heap",
        ),
        (
            "Unrecognized VM option 'Foo'\nError: Could not create the Java Virtual Machine.\n"
            "Error: A fatal exception has occurred. Program will exit.\n",
            "Unrecognized VM option 'Foo'",
        ),
        (  # Kafka 4.3 with the files of another node
            "2026-11-30 ERROR Kafka Exiting Kafka due to fatal exception\n"
            "java.lang.RuntimeException: Stored node id 7 doesn't match previous node id 1\n"
            "\tat org.apache.kafka.metadata.properties.MetaPropertiesEnsemble.verify(MetaPropertiesEnsemble.java:513)\n"
            "\tat kafka.Kafka.main(Kafka.scala)\n",
            "RuntimeException: Stored node id 7 doesn't match previous node id 1",
        ),
        (  # Spark 4.2 on a machine whose name has no address
            'Exception in thread "main" java.lang.ExceptionInInitializerError\n'
            "\tat org.apache.spark.SparkConf$.<init>(SparkConf.scala:669)\n"
            "Caused by: java.net.UnknownHostException: vm: Name or service not known\n"
            "\tat java.base/java.net.InetAddress.getLocalHost(InetAddress.java:1685)\n\t... 10 more\n",
            "UnknownHostException: vm: Name or service not known",
        ),
        (
            "java.lang.IllegalStateException: an older failure\n\tat a.B.c(B.java:1)\nterminated by the operator\n",
            "terminated by the operator",
        ),
    ],
)
def test_reason_is_at_the_end_of_the_output(output: str, reason: str) -> None:
    assert last_failure(output.splitlines()) == reason


def _spark(home: Path, version: str) -> dict[str, str]:
    (home / "jars").mkdir(parents=True)
    (home / "jars" / f"spark-core_2.13-{version}.jar").touch()
    return {"SPARK_HOME": str(home)}


def test_a_cluster_may_have_variables_with_which_spark_starts(tmp_path: Path) -> None:
    check_cluster_variables({"HADOOP_CONF_DIR": "/etc/hadoop", "PYSPARK_SUBMIT_ARGS": "--verbose pyspark-shell"})
    check_cluster_variables(_spark(tmp_path, metadata.version("pyspark")))


def test_a_variable_with_which_spark_cannot_start_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="SPARK_HOME: there is no Spark") as refusal:
        check_cluster_variables(_spark(tmp_path, "3.5.1"))
    assert refusal.value.exit_code == 2
    with pytest.raises(ConfigError, match="PYSPARK_SUBMIT_ARGS: must end with pyspark-shell"):
        check_cluster_variables({"PYSPARK_SUBMIT_ARGS": "--master yarn"})


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", True),
        ("local[2]", True),
        ("local[*]", True),
        ("local[2,3]", True),
        ("local-cluster[2,1,512]", False),
        ("spark://master:7077", False),
        ("yarn", False),
        ("k8s://https://10.0.0.1:6443", False),
    ],
)
def test_spark_is_one_process_only_with_a_local_master(master: str, expected: bool) -> None:
    assert is_one_process(master) == expected
