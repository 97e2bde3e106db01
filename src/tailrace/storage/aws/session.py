"""Session: connects to AWS, and translates its errors.

The SDK's own retries are off: the caller must find out whether a write without an answer has happened.
"""

from __future__ import annotations

import os
from typing import Any, Literal

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoAuthTokenError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProxyConnectionError,
    SSLError,
    SSOError,
    TokenRetrievalError,
)

from tailrace.errors import BadInput, HomeError, TailraceError, Throttled, TimedOut, TooLarge, Unavailable
from tailrace.storage.aws.answers import NotWhole, check_whole

NOT_SENT = (EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError)
NO_CREDENTIALS = (
    CredentialRetrievalError,
    NoAuthTokenError,
    NoCredentialsError,
    PartialCredentialsError,
    SSOError,
    TokenRetrievalError,
)
REFUSED_FOR_NOW = {
    "LimitExceededException",
    "ProvisionedThroughputExceeded",
    "ProvisionedThroughputExceededException",
    "ReplicatedWriteConflictException",
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingError",
    "ThrottlingException",
    "TransactionConflict",
    "TransactionConflictException",
}
BAD_CREDENTIALS = {
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignatureException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
DENIED = {"AccessDenied", "AccessDeniedException", "OptInRequired"}


def connect(
    service: Literal["dynamodb", "dynamodbstreams"],
    *,
    session: boto3.Session | None = None,
    region: str | None = None,
    endpoint: str | None = None,
    connect_timeout: float = 3,
    read_timeout: float = 10,
    pool: int = 64,
) -> Any:
    """A boto3 client that does not retry, has timeouts and a connection for each of many threads, and accepts only
    complete answers."""
    config = Config(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=connect_timeout,
        read_timeout=read_timeout,
        max_pool_connections=pool,
        parameter_validation=False,
        tcp_keepalive=True,
    )
    session = session or boto3.Session()
    place = region or region_of(session)
    try:
        client = session.client(service, region_name=place, endpoint_url=endpoint, config=config)
    except NoRegionError:
        raise HomeError("no AWS region is set; set AWS_REGION, or write `region=…` into the home's URL") from None
    except ValueError as error:
        raise HomeError(f"cannot use the endpoint {endpoint!r} for {service}: {error}") from None
    client.meta.events.register("before-parse.*.*", check_whole)
    return client


def region_of(session: boto3.Session) -> str | None:
    """The region of a session, or of AWS_REGION, which every SDK but Python's reads."""
    return session.region_name or os.environ.get("AWS_REGION")


def translated(error: BotoCoreError | ClientError, operation: str, table: str, home: str) -> TailraceError:
    """The tailrace error for one of AWS's; its message repeats no part of a signature."""
    what = f"{operation} on table {table!r}"
    if isinstance(error, ClientError):
        return _refusal(error, what, operation, table, home)
    if isinstance(error, NO_CREDENTIALS):
        return HomeError(f"{what}: no usable AWS credentials; `aws sts get-caller-identity` shows who you are")
    if isinstance(error, NOT_SENT) or (isinstance(error, SSLError) and "CERTIFICATE_VERIFY" in str(error)):
        return Unavailable(f"{what}: cannot connect, nothing was sent ({type(error).__name__})")
    if isinstance(error, NotWhole):
        return TimedOut(f"{what}: sent, but {error}; it may have happened")
    return TimedOut(f"{what}: sent, but not answered ({type(error).__name__}); it may have happened")


def _refusal(error: ClientError, what: str, operation: str, table: str, home: str) -> TailraceError:
    code = error.response.get("Error", {}).get("Code", "")
    message = error.response.get("Error", {}).get("Message", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in REFUSED_FOR_NOW:
        return Throttled(f"{what}: refused for now ({code})")
    if status >= 500:
        return TimedOut(f"{what}: {code}; it may have happened")
    if code == "ResourceNotFoundException":
        return HomeError(f"there is no table {table!r}; `tailrace home create {home or 'URL'}` makes it")
    if code in BAD_CREDENTIALS:
        return HomeError(f"{what}: AWS does not accept the credentials ({code}); renew them, and check the clock")
    if code in DENIED:
        return HomeError(f"{what}: the credentials in use may not do this; allow them dynamodb:{operation}")
    if code == "ValidationException":
        return invalid(message, what, table)
    return Unavailable(f"{what}: {code}: {message}")


def invalid(message: str, what: str, table: str) -> TailraceError:
    """The tailrace error for a ValidationException, or for a ValidationError within a transaction."""
    if "exceeded the maximum allowed size" in message or "too many operators" in message:
        return TooLarge(f"{what}: {message}")
    if "does not match the schema" in message:
        return HomeError(f"table {table!r} is not one of tailrace's: its keys are not p (text) and i (number)")
    return BadInput(f"{what}: {message}")
