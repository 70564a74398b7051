"""The Helm chart makes the same objects as the plain manifests; Helm itself is not needed."""

from copy import deepcopy
from typing import Any

import kubernetes_validate
import pytest
import yaml

from namesrv_stream import __version__
from tests.support.deployment import CHART, helm_objects, kubernetes_objects, kubernetes_settings, kustomization

_VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))


def _by_name(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {f"{found['kind']}/{found['metadata']['name']}": found for found in objects}


def _plain() -> dict[str, dict[str, Any]]:
    """The objects of the Kustomize base. Where Kustomize and Helm have to differ, they are changed as in the chart."""
    found = _by_name(deepcopy(kubernetes_objects()))
    del found["Namespace/namesrv-stream"]  # `helm install --create-namespace` creates it
    (image,) = kustomization()["images"]
    for workload in ("StatefulSet/namesrv", "Deployment/job", "Deployment/history"):
        template = found[workload]["spec"]["template"]
        template["metadata"]["annotations"] = {"checksum/settings": "digest"}  # instead of the hash in the name
        template["spec"]["containers"][0]["image"] = f"{image['name']}:{image['newTag']}"
    found["PersistentVolumeClaim/tables"]["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings"},
        "data": kubernetes_settings(),
    }
    return found | {"ConfigMap/settings": settings}


def test_the_chart_makes_the_objects_of_the_plain_manifests() -> None:
    made, plain = _by_name(helm_objects()), _plain()
    assert made.keys() == plain.keys()
    for name, found in made.items():
        assert found == plain[name], name


@pytest.mark.parametrize("found", helm_objects(), ids=lambda found: f"{found['kind']}/{found['metadata']['name']}")
def test_the_objects_conform_to_the_schemas_of_kubernetes(found: dict[str, Any]) -> None:
    kubernetes_validate.validate(found, "1.37", strict=True)


def test_changing_the_number_of_servers_requires_only_one_value() -> None:
    made = _by_name(helm_objects(servers={"replicas": 5}))
    assert made["StatefulSet/namesrv"]["spec"]["replicas"] == 5
    assert {f"Service/namesrv-{number}" for number in range(5)} <= made.keys()


def test_the_namespace_of_the_release_is_in_addresses_and_host_names() -> None:
    made = _by_name(helm_objects("elsewhere", servers={"allowedHosts": ["mq.example.com"]}))
    hosts = made["ConfigMap/settings"]["data"]["NAMESRV_STREAM__HTTP__ALLOWED_HOSTS"].split(";")
    assert {"*.elsewhere.svc", "namesrv-http.elsewhere", "mq.example.com"} <= set(hosts)
    (_, advertised) = made["StatefulSet/namesrv"]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert advertised["value"] == "$(NAMESRV_STREAM__SERVER__SERVER_ID).namesrv.elsewhere:9876"
    assert "namesrv-stream:9876" not in str(made)


def test_values_reach_the_objects() -> None:
    made = _by_name(
        helm_objects(
            image={"repository": "registry.example.com/ns", "tag": "1.2.3"},
            kafka={"bootstrapServers": "k:9093", "port": 9093},
            settings={"NAMESRV_STREAM__LOGS__LEVEL": "DEBUG"},
            secretName="other",
            history={"enabled": False},
            tables={"storageClassName": "nfs", "size": "1Ti"},
        )
    )
    assert "Deployment/history" not in made
    pod = made["Deployment/job"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "registry.example.com/ns:1.2.3"
    assert {"name": "secrets", "secret": {"secretName": "other", "defaultMode": 0o440}} in pod["volumes"]
    data = made["ConfigMap/settings"]["data"]
    assert (data["NAMESRV_STREAM__KAFKA__BOOTSTRAP_SERVERS"], data["NAMESRV_STREAM__LOGS__LEVEL"]) == (
        "k:9093",
        "DEBUG",
    )
    assert "9093" in str(made["NetworkPolicy/all"])
    claim = made["PersistentVolumeClaim/tables"]["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("nfs", "1Ti")


def test_chart_and_manifests_have_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    (image,) = kustomization()["images"]
    assert {chart["appVersion"], _VALUES["image"]["tag"], image["newTag"]} == {__version__}
    assert chart["version"].replace("-dev", ".dev") == __version__
