"""Functions: the Lambda functions on the stream of a home's table, with what watches over each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import ArnFormat, Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_destinations as destinations
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

MAX_BATCH = 10_000
ATTEMPTS = 10
"""How often a batch is tried again before its place goes to the dead-letter queue."""
TIP, HEAD = "2147483647", "9223372036854775807"
"""The range keys of an event stream's Tip and of a topic's head."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What one function is."""

    name: str
    module: str
    bundle: str
    environment: Mapping[str, str]
    statements: Sequence[Mapping[str, Any]]
    memory: int
    timeout: Duration
    python: str
    machine: str
    window: int
    """Seconds that changes are gathered for before the function is started."""
    restarts: bool = False
    """Whether the function starts itself again."""


class StreamFunction(Construct):
    """A function that the stream of a table starts.  What it cannot handle goes to a queue, and an alarm says so."""

    def __init__(self, scope: Construct, id: str, table: dynamodb.Table, settings: Settings, pattern: Any) -> None:
        super().__init__(scope, id)
        self.name = settings.name
        log_group = logs.LogGroup(self, "Logs", retention=logs.RetentionDays.ONE_MONTH)
        self.role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        for statement in settings.statements:
            self.role.add_to_policy(iam.PolicyStatement.from_json(statement))
        log_group.grant_write(self.role)
        self.dead_letters = sqs.Queue(
            self,
            "DeadLetters",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(14),
        )
        self.function = lambda_.Function(
            self,
            "Function",
            function_name=settings.name,
            runtime=lambda_.Runtime(f"python{settings.python}", lambda_.RuntimeFamily.PYTHON),
            architecture=lambda_.Architecture.ARM_64 if settings.machine == "arm64" else lambda_.Architecture.X86_64,
            code=lambda_.Code.from_asset(settings.bundle),
            handler=f"{settings.module}.handler",
            environment=dict(settings.environment),
            memory_size=settings.memory,
            timeout=settings.timeout,
            reserved_concurrent_executions=1,
            role=self.role,
            log_group=log_group,
            # The consumer starts itself again when its time is over.  Lambda takes a chain of 16 such starts for an
            # endless loop and stops it, unless the function's settings allow the loop.
            recursive_loop=lambda_.RecursiveLoop.ALLOW if settings.restarts else lambda_.RecursiveLoop.TERMINATE,
        )
        self.function.add_event_source(
            sources.DynamoEventSource(
                table,
                starting_position=lambda_.StartingPosition.TRIM_HORIZON,
                batch_size=MAX_BATCH,
                max_batching_window=Duration.seconds(settings.window),
                bisect_batch_on_error=True,
                retry_attempts=ATTEMPTS,
                on_failure=sources.SqsDlq(self.dead_letters),
                filters=[lambda_.FilterCriteria.filter(pattern)],
            )
        )
        if settings.restarts:
            self._restart()
        self._dead_letter_alarm()
        self._age_alarm()

    def _restart(self) -> None:
        """Let the function invoke itself, and put starts that failed into the queue as well."""
        self.role.add_to_policy(
            iam.PolicyStatement(
                sid="StartAgain", actions=["lambda:InvokeFunction"], resources=[arn_of(self, self.name)]
            )
        )
        self.function.configure_async_invoke(
            on_failure=destinations.SqsDestination(self.dead_letters), retry_attempts=2
        )

    def _dead_letter_alarm(self) -> None:
        self.dead_letters.metric_approximate_number_of_messages_visible(
            period=Duration.minutes(1), statistic="Maximum"
        ).create_alarm(
            self,
            "DeadLetterAlarm",
            threshold=1,
            evaluation_periods=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=f"{self.name} gave up on changes: its log says why, deploy/aws/README.md what to do",
        )

    def _age_alarm(self) -> None:
        """Changes are kept for 24 hours: who is an hour behind has time to be helped."""
        self.function.metric("IteratorAge", period=Duration.minutes(5), statistic="Maximum").create_alarm(
            self,
            "AgeAlarm",
            threshold=3_600_000,
            evaluation_periods=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=f"{self.name} is an hour behind the table's stream, which keeps changes for 24 hours",
        )


def arn_of(scope: Construct, name: str) -> str:
    """The ARN that a function of this name has."""
    return Stack.of(scope).format_arn(
        service="lambda", resource="function", resource_name=name, arn_format=ArnFormat.COLON_RESOURCE_NAME
    )


def of_tips() -> dict[str, Any]:
    """The changes that the indexer wants: those of Tips.  It gets the Tips of its own index as well, and drops them."""
    return {"dynamodb": {"Keys": {"i": {"N": [TIP]}}}}


def of_heads() -> dict[str, Any]:
    """The changes that a consumer wants: those of the heads of topics."""
    return {"dynamodb": {"Keys": {"p": {"S": [{"prefix": "$Log-"}]}, "i": {"N": [HEAD]}}}}
