"""cluster.yaml: what Ray itself makes of it, up to the instances that it asks AWS for."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from jsonschema import ValidationError
from moto import mock_aws
from ray.autoscaler._private.aws import node_provider
from ray.autoscaler._private.aws.config import bootstrap_aws
from ray.autoscaler._private.aws.node_provider import AWSNodeProvider
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.autoscaler.tags import NODE_KIND_WORKER, TAG_RAY_NODE_KIND, TAG_RAY_USER_NODE_TYPE

from tstore.settings import TaskSettings

CLUSTER = Path(__file__).parents[2] / "cluster.yaml"
WORKER = "worker"

Config = dict[str, Any]


@pytest.fixture(scope="module")
def _aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An AWS in this process that has the two roles; Ray writes its key pair to the home."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE"):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_DEFAULT_REGION", given()["provider"]["region"])
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        with mock_aws():
            iam = boto3.client("iam")
            for node in given()["available_node_types"].values():
                profile = node["node_config"]["IamInstanceProfile"]["Name"]
                iam.create_instance_profile(InstanceProfileName=profile)
            yield


def given() -> Config:
    return dict(yaml.safe_load(CLUSTER.read_text()))


@pytest.fixture(scope="module")
def config(_aws: None) -> Config:
    """As ``ray up`` prepares it: defaults, and what the instance types have."""
    with pytest.MonkeyPatch.context() as patch:  # it would list all types that there are
        patch.setattr(node_provider, "list_ec2_instances", _list_ours)
        filled = AWSNodeProvider.fillout_available_node_types_resources(prepare_config(given()))
    return dict(filled)


def _list_ours(*_: Any) -> list[Config]:
    nodes = given()["available_node_types"].values()
    names = [node["node_config"]["InstanceType"] for node in nodes]
    return list(boto3.client("ec2").describe_instance_types(InstanceTypes=names)["InstanceTypes"])


def test_ray_accepts_it(config: Config) -> None:
    validate_config(config)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("max_worker",), 1),
        (("max_workers",), -1),
        (("available_node_types", WORKER, "market"), "spot"),
        (("available_node_types", WORKER, "resources", "CPU"), "16"),
    ],
)
def test_ray_refuses_what_it_does_not_know(
    config: Config, path: tuple[str, ...], value: Any
) -> None:
    wrong = copy.deepcopy(config)
    place = wrong
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(ValidationError):
        validate_config(wrong)


def test_every_core_of_a_worker_has_memory_for_a_task(config: Config) -> None:
    """A task that declares more would leave cores idle, or wait for ever."""
    has = config["available_node_types"][WORKER]["resources"]
    assert has["memory"] / has["CPU"] >= largest_task_nbytes()


def largest_task_nbytes() -> int:
    """What the encode task of a part as large as they come declares."""
    tasks = TaskSettings()
    return (
        tasks.base_memory_nbytes
        + tasks.base_cache_nbytes
        + tasks.memory_factor * tasks.tensor_extent_nbytes
        + tasks.encode_nbytes
    )


def test_no_task_runs_on_the_head(config: Config) -> None:
    assert config["available_node_types"][config["head_node_type"]]["resources"]["CPU"] == 0


def test_workers_are_spot_instances_with_a_role_and_the_head_is_not(config: Config) -> None:
    ready = bootstrap_aws(config)
    provider = AWSNodeProvider(ready["provider"], ready["cluster_name"])
    for node, kind, lifecycle in (("head", "head", None), (WORKER, NODE_KIND_WORKER, "spot")):
        node_config = ready["available_node_types"][node]["node_config"]
        tags = {TAG_RAY_NODE_KIND: kind, TAG_RAY_USER_NODE_TYPE: node}
        (instance,) = provider.create_node(node_config, tags, 1).values()
        assert instance.instance_lifecycle == lifecycle
        assert instance.instance_type == node_config["InstanceType"]
        assert instance.iam_instance_profile["Arn"].endswith(f"tstore-{node}")
        assert instance.subnet_id
        assert instance.security_groups


def test_nothing_in_it_looks_like_a_key() -> None:
    text = CLUSTER.read_text()
    for secret in ("AWS_ACCESS_KEY", "AWS_SECRET", "aws_credentials", "AKIA"):
        assert secret not in text


def test_every_node_is_set_up_alike_and_compiles_where_its_workers_look(config: Config) -> None:
    """The cache that `tstore.cluster.warm` fills is the one that `ray start` names."""
    starts = (config["head_start_ray_commands"][-1], config["worker_start_ray_commands"][-1])
    for start in starts:
        assert "RAY_AUTH_MODE=token" in start
        assert "NUMBA_CACHE_DIR=~/numba-cache" in start
    warm = config["setup_commands"][-1]
    assert warm.startswith("NUMBA_CACHE_DIR=~/numba-cache ")
    assert warm.endswith("-m tstore.cluster.warm")
