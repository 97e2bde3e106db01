"""Storage: the bucket and the table of a home.  Both stay when the stack is removed."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from constructs import Construct

KEPT_DAYS = 35
"""How long the table can be restored to any second; chunks deleted since then must still be there, too."""


def bucket_of(scope: Construct) -> s3.Bucket:
    """The bucket of the chunks: private, encrypted; what upkeep deletes can be had back as long as the table can."""
    return s3.Bucket(
        scope,
        "Bucket",
        encryption=s3.BucketEncryption.S3_MANAGED,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        enforce_ssl=True,
        versioned=True,
        lifecycle_rules=[
            s3.LifecycleRule(
                noncurrent_version_expiration=Duration.days(KEPT_DAYS),
                abort_incomplete_multipart_upload_after=Duration.days(1),
            )
        ],
        removal_policy=RemovalPolicy.RETAIN,
    )


def table_of(scope: Construct) -> dynamodb.Table:
    """The table of everything else, the events and their index among it, with the stream that the functions read."""
    return dynamodb.Table(
        scope,
        "Table",
        partition_key=dynamodb.Attribute(name="p", type=dynamodb.AttributeType.STRING),
        sort_key=dynamodb.Attribute(name="i", type=dynamodb.AttributeType.NUMBER),
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        stream=dynamodb.StreamViewType.NEW_IMAGE,
        encryption=dynamodb.TableEncryption.AWS_MANAGED,
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
        deletion_protection=True,
        removal_policy=RemovalPolicy.RETAIN,
    )
