"""The synthesised stack, point by point."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.events.tip import TIP
from tailrace.log.format.head import head_key
from tailrace.storage.tables import LAST
from tests.deploy.template import ACCOUNT, REGION, Template

pytestmark = pytest.mark.server


def mapping(template: Template, function: str) -> dict[str, Any]:
    return template.one("AWS::Lambda::EventSourceMapping", function)


def function(template: Template, name: str) -> dict[str, Any]:
    return template.one("AWS::Lambda::Function", name)


def test_the_table_has_tailrace_s_keys_a_stream_encryption_and_recovery(template: Template) -> None:
    table = template.one("AWS::DynamoDB::Table")
    assert table["KeySchema"] == [
        {"AttributeName": "p", "KeyType": "HASH"},
        {"AttributeName": "i", "KeyType": "RANGE"},
    ]
    assert {"AttributeName": "p", "AttributeType": "S"} in table["AttributeDefinitions"]
    assert {"AttributeName": "i", "AttributeType": "N"} in table["AttributeDefinitions"]
    assert table["StreamSpecification"] == {"StreamViewType": "NEW_IMAGE"}
    assert table["SSESpecification"] == {"SSEEnabled": True}
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert table["DeletionProtectionEnabled"] is True


def test_the_bucket_is_private_encrypted_and_keeps_what_is_deleted(template: Template) -> None:
    bucket = template.one("AWS::S3::Bucket")
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    assert bucket["LifecycleConfiguration"]["Rules"][0]["NoncurrentVersionExpiration"] == {"NoncurrentDays": 35}
    (denied,) = template.one("AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"]
    assert denied["Effect"] == "Deny"
    assert denied["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_data_stays_when_the_stack_goes(template: Template) -> None:
    for type in ("AWS::DynamoDB::Table", "AWS::S3::Bucket"):
        (kept,) = (one for one in template.resources.values() if one["Type"] == type)
        assert kept["DeletionPolicy"] == kept["UpdateReplacePolicy"] == "Retain"


@pytest.mark.parametrize("name", ["Indexer", "TopicConsumer"])
def test_a_function_reads_the_stream_from_its_beginning_and_gives_nothing_up_in_silence(
    template: Template, name: str
) -> None:
    source = mapping(template, name)
    assert source["StartingPosition"] == "TRIM_HORIZON"
    assert source["BatchSize"] == 10_000
    assert source["MaximumBatchingWindowInSeconds"] == 1
    assert source["BisectBatchOnFunctionError"] is True
    assert source["MaximumRetryAttempts"] == 10
    assert "FunctionResponseTypes" not in source  # the functions take whole batches
    assert source.get("ParallelizationFactor", 1) == 1
    queue = source["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0]
    assert queue.startswith(f"{name}DeadLetters")
    assert template.of("AWS::SQS::Queue")[queue]["SqsManagedSseEnabled"] is True
    assert template.of("AWS::SQS::Queue")[queue]["MessageRetentionPeriod"] == 14 * 86_400
    assert source["EventSourceArn"]["Fn::GetAtt"][1] == "StreamArn"
    assert function(template, name)["ReservedConcurrentExecutions"] == 1


@pytest.mark.parametrize("name", ["Indexer", "TopicConsumer"])
def test_alarms_tell_of_dead_letters_and_of_a_function_that_falls_behind(template: Template, name: str) -> None:
    letters = template.one("AWS::CloudWatch::Alarm", f"{name}DeadLetterAlarm")
    assert letters["MetricName"] == "ApproximateNumberOfMessagesVisible"
    assert letters["Threshold"] == 1
    assert letters["Dimensions"][0]["Value"]["Fn::GetAtt"][0].startswith(f"{name}DeadLetters")
    age = template.one("AWS::CloudWatch::Alarm", f"{name}AgeAlarm")
    assert age["MetricName"] == "IteratorAge"
    assert age["Threshold"] == 3_600_000
    for alarm in (letters, age):
        assert alarm["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
        assert alarm["TreatMissingData"] == "notBreaching"


def test_the_indexer_is_started_by_tips_and_nothing_else(template: Template) -> None:
    (pattern,) = mapping(template, "Indexer")["FilterCriteria"]["Filters"]
    assert json.loads(pattern["Pattern"]) == {"dynamodb": {"Keys": {"i": {"N": [str(TIP)]}}}}
    assert str(LAST) != str(TIP)  # so appends to topics do not start it


def test_the_consumer_is_started_by_the_heads_of_topics(template: Template) -> None:
    (pattern,) = mapping(template, "TopicConsumer")["FilterCriteria"]["Filters"]
    head = head_key("any")
    keys = json.loads(pattern["Pattern"])["dynamodb"]["Keys"]
    assert keys["i"] == {"N": [str(head.i)]}
    assert head.p.startswith(keys["p"]["S"][0]["prefix"])


def test_the_functions_know_what_they_serve(template: Template) -> None:
    indexer, consumer = function(template, "Indexer"), function(template, "TopicConsumer")
    assert indexer["Handler"] == "tailrace.lambdas.indexer.handler"
    assert template.plain(indexer["Environment"]["Variables"]) == {
        "TAILRACE_TABLE": next(iter(template.of("AWS::DynamoDB::Table"))),
        "TAILRACE_PARTITIONS": "1",
        "TAILRACE_GAPS": "refuse",
    }
    assert consumer["Handler"] == "tailrace.lambdas.consumer.handler"
    variables = template.plain(consumer["Environment"]["Variables"])
    (bucket,), (table,) = template.of("AWS::S3::Bucket"), template.of("AWS::DynamoDB::Table")
    assert variables == {
        "TAILRACE_HOME": f"s3://{bucket}/home?table={table}&region={REGION}",
        "TAILRACE_TOPIC": "orders",
        "TAILRACE_GROUP": "mailer",
        "TAILRACE_HANDLER": "shop:mail",
    }
    for one in (indexer, consumer):
        assert one["Runtime"] == "python3.13"
        assert one["Architectures"] == ["arm64"]


def test_only_the_consumer_starts_itself_again_and_lambda_lets_it(template: Template) -> None:
    assert function(template, "TopicConsumer")["RecursiveLoop"] == "Allow"
    assert function(template, "Indexer")["RecursiveLoop"] == "Terminate"
    (start,) = (one for one in template.statements("TopicConsumer") if one.get("Sid") == "StartAgain")
    name = function(template, "TopicConsumer")["FunctionName"]
    assert start["Action"] == "lambda:InvokeFunction"
    assert start["Resource"] == f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{name}"
    config = template.one("AWS::Lambda::EventInvokeConfig")
    assert config["MaximumRetryAttempts"] == 2
    assert config["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0].startswith("TopicConsumerDead")
    assert not any("lambda:" in str(one["Action"]) for one in template.statements("Indexer"))


def test_the_stack_says_where_the_home_is_and_what_the_policies_are_called(template: Template) -> None:
    outputs = template.plain(template.body["Outputs"])
    assert set(outputs) == {"Home", "ProducerPolicy", "ConsumerPolicy", "OperatorPolicy"}
    assert outputs["Home"]["Value"].startswith("s3://Bucket")
    assert len(template.of("AWS::IAM::ManagedPolicy")) == 3


def test_logs_are_kept_for_a_month_and_no_role_is_wider_than_its_policy(template: Template) -> None:
    assert {one["RetentionInDays"] for one in template.of("AWS::Logs::LogGroup").values()} == {30}
    for role in template.of("AWS::IAM::Role").values():
        assert "ManagedPolicyArns" not in role
    roles = ("producer", "consumer", "operator", "Indexer", "TopicConsumer")
    for statement in (one for role in roles for one in template.statements(role)):
        actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        assert not any("*" in action for action in actions)
        assert statement["Resource"] != "*" or actions == ["dynamodb:ListStreams"]
