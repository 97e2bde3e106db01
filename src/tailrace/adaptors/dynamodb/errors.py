"""Errors of AWS and its SDK, translated into tailrace's errors.

`Throttled`, `Unavailable` and `TimedOut` pass without an operator.  `NotReady` needs one: credentials, a right, a
region.  `NotThere`: the table does not exist.  No message repeats a signature or a key."""

from __future__ import annotations

from botocore.exceptions import BotoCoreError, ClientError, NoRegionError, SSLError

from tailrace.errors import NotReady, TailraceError, Throttled, TimedOut, TooLarge, Unavailable, UnknownTable
from tailrace.storage.aws.answers import NotWhole
from tailrace.storage.aws.session import BAD_CREDENTIALS, DENIED, NO_CREDENTIALS, NOT_SENT, REFUSED_FOR_NOW

NO_REGION = "no AWS region is set; set region = …, or AWS_REGION"
AFRESH = "Give the pipeline another name, and it is copied afresh and followed"


def code_of(error: BaseException) -> str:
    """Return AWS's code of an error; "" for an error that is not from AWS."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def message_of(error: BaseException) -> str:
    """Return AWS's message of an error, on one line and cut at 300 characters; "" for an error that is not from AWS."""
    told = error.response.get("Error", {}).get("Message", "") if isinstance(error, ClientError) else ""
    return " ".join(str(told).split())[:300]


def failed(error: BotoCoreError | ClientError, where: str, operation: str, table: str) -> TailraceError:
    """Return the error that says why a request failed."""
    what = f"DynamoDB {where}, {operation}" + (f" of {table}" if table else "")
    if isinstance(error, ClientError):
        return _refused(error, what, where, operation, table)
    if isinstance(error, NoRegionError):
        return NotReady(NO_REGION)
    if isinstance(error, NO_CREDENTIALS):
        return NotReady(f"{what}: no usable AWS credentials; `aws sts get-caller-identity` shows who you are")
    if isinstance(error, NOT_SENT) or (isinstance(error, SSLError) and "CERTIFICATE_VERIFY" in str(error)):
        return Unavailable(f"{what}: cannot connect ({type(error).__name__}); are region and endpoint right?")
    if isinstance(error, NotWhole):
        return TimedOut(f"{what}: sent, but {error}; is the endpoint one of DynamoDB?")
    return TimedOut(f"{what}: sent, but not answered ({type(error).__name__})")


def _refused(error: ClientError, what: str, where: str, operation: str, table: str) -> TailraceError:
    code, status = code_of(error), error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in REFUSED_FOR_NOW:
        return Throttled(f"{what}: refused for now ({code})")
    if status >= 500:
        return TimedOut(f"{what}: {code or status}")
    if code in ("ResourceNotFoundException", "TableNotFoundException"):
        return UnknownTable(f"there is no table {table} in DynamoDB {where} (any more)")
    if code in BAD_CREDENTIALS:
        return NotReady(f"{what}: AWS does not accept the credentials ({code}); renew them, and check the clock")
    if code in DENIED:
        return NotReady(f"{what}: the credentials in use may not do this; allow them dynamodb:{operation}")
    if "exceeded the maximum allowed size" in message_of(error):
        return TooLarge(f"{what}: {message_of(error)}")
    return NotReady(f"{what}: {code}: {message_of(error)}")
