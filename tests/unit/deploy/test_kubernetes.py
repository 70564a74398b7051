"""The manifests agree with Kubernetes' schemas, with each other and with the code; the tests use no cluster."""

from typing import Any

import kubernetes_validate
import pytest
import yaml

from namesrv_stream.server.http.limits import AllowedHosts
from namesrv_stream.settings import Settings
from namesrv_stream.streaming.history import history_job as history
from namesrv_stream.streaming.route_table import route_job
from tests.support.deployment import (
    KUBERNETES,
    instructions,
    kubernetes_objects,
    kubernetes_settings,
    kustomization,
    plain_secrets,
    settings_with,
)

_VERSIONS = ("1.32", "1.37")
_OBJECTS = kubernetes_objects()
_SECRET: dict[str, Any] = yaml.safe_load((KUBERNETES / "secret.example.yaml").read_text())


def _name(found: dict[str, Any]) -> str:
    return f"{found['kind']}/{found['metadata']['name']}"


def _of_kind(*kinds: str) -> dict[str, dict[str, Any]]:
    return {o["metadata"]["name"]: o for o in _OBJECTS if o["kind"] in kinds}


_WORKLOADS = _of_kind("StatefulSet", "Deployment")
_SERVERS = _WORKLOADS["namesrv"]


def _pod(workload: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = workload["spec"]["template"]["spec"]
    return found


def _container(workload: dict[str, Any]) -> dict[str, Any]:
    (found,) = _pod(workload)["containers"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("found", [*_OBJECTS, _SECRET], ids=_name)
@pytest.mark.parametrize("version", _VERSIONS)
def test_manifests_conform_to_the_schemas_of_kubernetes(found: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(found, version, strict=True)


def test_every_manifest_is_listed() -> None:
    files = {path.name for path in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml", "secret.example.yaml"}
    assert set(kustomization()["resources"]) == files


def test_variables_are_settings_and_none_is_a_secret() -> None:
    settings = settings_with(kubernetes_settings() | {"NAMESRV_STREAM__SERVER__SERVER_ID": "namesrv-0"})
    assert settings.kafka.replication_factor == 3
    assert plain_secrets(kubernetes_settings()) == []
    assert set(_SECRET["stringData"].values()) == {""}


@pytest.mark.parametrize("workload", _WORKLOADS.values(), ids=_name)
def test_pods_meet_the_restricted_standard(workload: dict[str, Any]) -> None:
    pod, container = _pod(workload), _container(workload)
    (user,) = (rest.split(":") for name, rest in instructions() if name == "USER")
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == int(user[0])
    assert pod["securityContext"]["fsGroup"] == int(user[1])
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False
    assert container["resources"]["limits"].keys() == {"memory"}


@pytest.mark.parametrize("workload", _WORKLOADS.values(), ids=_name)
def test_objects_that_pods_refer_to_exist(workload: dict[str, Any]) -> None:
    pod, container = _pod(workload), _container(workload)
    template = workload["spec"]["template"]["metadata"]["labels"]
    assert workload["spec"]["selector"]["matchLabels"].items() <= template.items()
    assert container["image"] in {image["name"] for image in kustomization()["images"]}
    generated = {generator["name"] for generator in kustomization()["configMapGenerator"]}
    assert {source["configMapRef"]["name"] for source in container["envFrom"]} <= generated
    claims = _of_kind("PersistentVolumeClaim")
    templates = {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
    for volume in pod["volumes"]:
        if "persistentVolumeClaim" in volume:
            assert volume["persistentVolumeClaim"]["claimName"] in claims
        if "secret" in volume:
            assert volume["secret"]["secretName"] == _SECRET["metadata"]["name"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted.keys() == {volume["name"] for volume in pod["volumes"]} | templates
    settings = settings_with(kubernetes_settings())
    assert mounted["data"] == str(settings.data.dir)
    assert mounted["tables"] == settings.data.tables
    secrets = [settings.admin.accounts_file, container["args"][-1]]
    assert {path.removeprefix(f"{mounted['secrets']}/") for path in secrets} == _SECRET["stringData"].keys()


def test_probes_use_existing_commands_and_pages() -> None:
    settings = settings_with(kubernetes_settings())
    container = _container(_SERVERS)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"remoting": settings.remoting.listen_port, "http": settings.http.listen_port}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    for name, run_file in (("job", route_job.RUN_FILE), ("history", history.RUN_FILE)):
        probe = _container(_WORKLOADS[name])["readinessProbe"]["exec"]["command"]
        assert probe == ["test", "-f", str(settings.data.run_dir / run_file)]


def test_grace_period_is_longer_than_the_timeout_for_stopping() -> None:
    for workload in _WORKLOADS.values():
        assert _pod(workload)["terminationGracePeriodSeconds"] * 1000 > Settings().server.stop_timeout_ms


def test_every_server_has_its_own_address_which_clients_receive() -> None:
    services = _of_kind("Service")
    pods = [f"namesrv-{number}" for number in range(_SERVERS["spec"]["replicas"])]
    for pod in pods:
        assert services[pod]["spec"]["selector"] == {"statefulset.kubernetes.io/pod-name": pod}
    namespace = kustomization()["namespace"]
    port = Settings().remoting.listen_port
    headless = _SERVERS["spec"]["serviceName"]
    assert services[headless]["spec"]["clusterIP"] == "None"
    assert settings_with(kubernetes_settings()).http.nsaddr == ()
    _, variable = _container(_SERVERS)["env"]
    address = f"$(NAMESRV_STREAM__SERVER__SERVER_ID).{headless}.{namespace}:{port}"
    assert variable == {"name": "NAMESRV_STREAM__REMOTING__ADVERTISED_ADDRESS", "value": address}
    expanded = address.replace("$(NAMESRV_STREAM__SERVER__SERVER_ID)", pods[0])
    assert settings_with({variable["name"]: expanded}).remoting.advertised_address == expanded


def test_servers_answer_for_the_names_that_their_services_give_them() -> None:
    hosts = AllowedHosts(settings_with(kubernetes_settings()).http.allowed_hosts)
    namespace, headless = kustomization()["namespace"], _SERVERS["spec"]["serviceName"]
    names = ["namesrv-http", *(f"namesrv-{number}.{headless}" for number in range(_SERVERS["spec"]["replicas"]))]
    for name in names:
        for ending in ("", f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.cluster.local"):
            assert hosts.allows(f"{name}{ending}:{Settings().http.listen_port}"), name + ending
    assert not hosts.allows("attacker.example")


def test_services_forward_to_ports_of_servers() -> None:
    named = {port["name"]: port["containerPort"] for port in _container(_SERVERS)["ports"]}
    for service in _of_kind("Service").values():
        for port in service["spec"]["ports"]:
            assert named[port["targetPort"]] == port["port"]


def test_servers_get_their_ids_from_their_names() -> None:
    variable, _ = _container(_SERVERS)["env"]
    assert variable["name"] == "NAMESRV_STREAM__SERVER__SERVER_ID"
    assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}


@pytest.mark.parametrize("name", ["job", "history"])
def test_only_one_writer_of_the_tables_runs_at_a_time(name: str) -> None:
    assert _WORKLOADS[name]["spec"]["replicas"] == 1
    assert _WORKLOADS[name]["spec"]["strategy"] == {"type": "Recreate"}


def test_servers_mount_the_tables_read_only_from_many_nodes() -> None:
    for name, workload in _WORKLOADS.items():
        (mount,) = (m for m in _container(workload)["volumeMounts"] if m["name"] == "tables")
        assert mount.get("readOnly", False) == (name == "namesrv")
    assert _of_kind("PersistentVolumeClaim")["tables"]["spec"]["accessModes"] == ["ReadWriteMany"]


def test_at_most_one_server_is_evicted_at_a_time() -> None:
    budget = _of_kind("PodDisruptionBudget")["namesrv"]["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == _SERVERS["spec"]["selector"]


def test_ingress_is_denied_unless_allowed() -> None:
    policies = _of_kind("NetworkPolicy")
    assert policies["all"]["spec"]["podSelector"] == {}
    assert policies["all"]["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policies["all"]["spec"]
    let_in = policies["namesrv"]["spec"]
    assert let_in["podSelector"] == _SERVERS["spec"]["selector"]
    everybody = [rule["ports"] for rule in let_in["ingress"] if "from" not in rule]
    assert everybody == [[{"protocol": "TCP", "port": "remoting"}]]


def test_egress_to_kafka_is_allowed() -> None:
    kafka = settings_with(kubernetes_settings()).kafka.bootstrap_servers
    allowed = {port["port"] for rule in _of_kind("NetworkPolicy")["all"]["spec"]["egress"] for port in rule["ports"]}
    assert {int(address.rpartition(":")[2]) for address in kafka.split(",")} <= allowed
