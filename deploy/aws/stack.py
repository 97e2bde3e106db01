"""The stack: a home on S3 and DynamoDB, the indexer of its feed, a consumer if one is asked for, and the policies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct
from functions import Settings, StreamFunction, of_heads, of_tips
from policies import policies

from storage import bucket_of, table_of


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What to deploy.  Without a topic there is no consumer."""

    prefix: str = "home"
    python: str = "3.13"
    machine: str = "arm64"
    partitions: int = 1
    gaps: str = "refuse"
    window: int = 1
    indexer_bundle: str
    topic: str = ""
    group: str = ""
    handler: str = ""
    consumer_bundle: str = ""


class TailraceStack(Stack):
    """One home.  Several of them can live in an account, each as a stack with a name of its own."""

    def __init__(self, scope: Construct, id: str, wanted: Wanted) -> None:
        super().__init__(scope, id, description="A home of tailrace: a log, an event store and its feed")
        self._wanted = wanted
        self.bucket, self.table = bucket_of(self), table_of(self)
        self.url = f"s3://{self.bucket.bucket_name}/{wanted.prefix}?table={self.table.table_name}&region={self.region}"
        stream = self.table.table_stream_arn or ""
        self._statements = policies(self.table.table_arn, stream, self.bucket.bucket_arn, wanted.prefix)
        for role in ("producer", "consumer", "operator"):
            self._managed(role)
        self.indexer = self._indexer()
        self.consumer = self._consumer() if wanted.topic else None
        CfnOutput(self, "Home", value=self.url, description="the home's URL, for tailrace.open() and --home")

    def _managed(self, role: str) -> None:
        statements = [iam.PolicyStatement.from_json(one) for one in self._statements[role]]
        policy = iam.ManagedPolicy(
            self, role.capitalize(), statements=statements, description=f"{role} of the home in {self.stack_name}"
        )
        CfnOutput(self, f"{role.capitalize()}Policy", value=policy.managed_policy_arn)

    def _indexer(self) -> StreamFunction:
        wanted = self._wanted
        settings = Settings(
            name=f"{self.stack_name}-indexer",
            module="tailrace.lambdas.indexer",
            bundle=_built(wanted.indexer_bundle, "indexer"),
            environment={
                "TAILRACE_TABLE": self.table.table_name,
                "TAILRACE_PARTITIONS": str(wanted.partitions),
                "TAILRACE_GAPS": wanted.gaps,
            },
            statements=self._statements["indexer"],
            memory=1024,
            timeout=Duration.minutes(5),
            python=wanted.python,
            machine=wanted.machine,
            window=wanted.window,
        )
        return StreamFunction(self, "Indexer", self.table, settings, of_tips())

    def _consumer(self) -> StreamFunction:
        wanted = self._wanted
        settings = Settings(
            name=f"{self.stack_name}-consumer",
            module="tailrace.lambdas.consumer",
            bundle=_built(wanted.consumer_bundle, "consumer"),
            environment={
                "TAILRACE_HOME": self.url,
                "TAILRACE_TOPIC": wanted.topic,
                "TAILRACE_GROUP": wanted.group,
                "TAILRACE_HANDLER": wanted.handler,
            },
            statements=self._statements["consumer"],
            memory=1769,
            timeout=Duration.minutes(15),
            python=wanted.python,
            machine=wanted.machine,
            window=wanted.window,
            restarts=True,
        )
        return StreamFunction(self, "TopicConsumer", self.table, settings, of_heads())


def _built(bundle: str, name: str) -> str:
    if not Path(bundle, "tailrace").is_dir():
        raise SystemExit(f"{bundle} is no bundle; `python deploy/aws/bundle.py {name}` builds it")
    return bundle
