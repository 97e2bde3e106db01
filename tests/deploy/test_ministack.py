"""The synthesised stack itself, made by CloudFormation on ministack: the table's stream starts its functions."""

from __future__ import annotations

import io
import json
import site
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.events import Event
from tailrace.home import Home
from tests.deploy.template import Template
from tests.servers.aws import session_of
from tests.servers.environment import ROOT
from tests.servers.process import Server

pytestmark = [pytest.mark.server, pytest.mark.processes]

ASSETS = "cdk-hnb659fds-assets-000000000000-us-east-1"
PATIENCE = 120.0

# A bundle with Arrow has 140 MiB: this one takes tailrace and Arrow from where the tests have them.
CONSUMER = """
import sys
for name in [name for name in sys.modules if name.partition(".")[0] == "tailrace"]:
    del sys.modules[name]
sys.path[:0] = {paths!r}
from tailrace.lambdas.consumer import handler
"""
SHOP = """
def mail(record):
    with open({seen!r}, "ab") as out:
        out.write(record.value + b"\\n")
"""


def zipped(files: dict[str, str]) -> bytes:
    """A bundle of these files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the consumer's handler writes what it was given."""
    return tmp_path_factory.mktemp("seen") / "values"


@pytest.fixture(scope="module")
def home(ministack: Server, template: Template, indexer_bundle: tuple[Path, str], seen: Path) -> Iterator[Home]:
    """The home of a stack that CloudFormation has made."""
    consumer = {
        "tailrace/__init__.py": "",
        "tailrace/lambdas/__init__.py": "",
        "tailrace/lambdas/consumer.py": CONSUMER.format(paths=[str(ROOT / "src"), *site.getsitepackages()]),
        "shop.py": SHOP.format(seen=str(seen)),
    }
    bundles = {"Indexer": indexer_bundle[0].with_suffix(".zip").read_bytes(), "TopicConsumer": zipped(consumer)}
    outputs = create(ministack, template, bundles)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", ministack.key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", ministack.secret)
        ends = f"endpoint={ministack.url}&table_endpoint={ministack.url}"
        with tailrace.open(f"{outputs['Home']}&{ends}") as home:
            yield home


def create(server: Server, template: Template, bundles: dict[str, bytes]) -> dict[str, str]:
    """Do what `cdk bootstrap` and `cdk deploy` do; gives the stack's outputs."""

    def client(service: Any) -> Any:
        return session_of(server).client(service, endpoint_url=server.url)

    client("ssm").put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String")
    s3, formation = client("s3"), client("cloudformation")
    s3.create_bucket(Bucket=ASSETS)
    for name, bundle in bundles.items():
        s3.put_object(Bucket=ASSETS, Key=template.one("AWS::Lambda::Function", name)["Code"]["S3Key"], Body=bundle)
    formation.create_stack(
        StackName="tailrace", TemplateBody=json.dumps(template.body), Capabilities=["CAPABILITY_NAMED_IAM"]
    )
    end = time.monotonic() + PATIENCE
    while (stack := formation.describe_stacks(StackName="tailrace")["Stacks"][0])["StackStatus"].endswith("PROGRESS"):
        assert time.monotonic() < end, stack
        time.sleep(0.1)
    assert stack["StackStatus"] == "CREATE_COMPLETE", stack
    return {one["OutputKey"]: one["OutputValue"] for one in stack["Outputs"]}


def test_appends_to_event_streams_come_into_the_feed(home: Home) -> None:
    for n in range(6):
        home.events().stream(f"Cart-{n % 2}").append([Event(f"T{n}", b"x"), Event("Seen")])
    expected = {f"Cart-{n}": list(range(6)) for n in range(2)}
    end, found = time.monotonic() + PATIENCE, {}
    while found != expected and time.monotonic() < end:
        time.sleep(0.1)
        found = {name: [] for name in expected}
        with home.events().feed() as feed:
            for event in feed:
                found[event.stream].append(event.index)
    assert found == expected


def test_appends_to_the_topic_start_the_consumer(home: Home, seen: Path) -> None:
    orders = home.create_topic("orders", 2)
    for part in (range(20), range(20, 30)):
        orders.append([(b"%d" % n, b"%d" % n) for n in part])
        expected = sorted(b"%d" % n for n in range(part.stop))
        end = time.monotonic() + PATIENCE
        while len(seen.read_bytes().split() if seen.exists() else []) < len(expected) and time.monotonic() < end:
            time.sleep(0.1)
        assert sorted(seen.read_bytes().split()) == expected
