"""A CloudFormation template, for asking: its resources by type, and its policies with plain ARNs."""

from __future__ import annotations

from typing import Any

ACCOUNT, REGION = "123456789012", "us-east-1"


class Template:
    """A synthesised stack."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.resources: dict[str, Any] = body["Resources"]

    def of(self, type: str) -> dict[str, Any]:
        """The properties of all resources of a type, by their logical names."""
        return {name: one.get("Properties", {}) for name, one in self.resources.items() if one["Type"] == type}

    def one(self, type: str, name: str = "") -> dict[str, Any]:
        """The properties of the only resource of a type whose name begins so."""
        (found,) = (one for logical, one in self.of(type).items() if logical.startswith(name))
        return dict(found)

    def statements(self, role: str) -> list[dict[str, Any]]:
        """What a role may do: producer, consumer, operator, or one of the functions' (Indexer, TopicConsumer)."""
        for kind, name in (("AWS::IAM::ManagedPolicy", role.capitalize()), ("AWS::IAM::Policy", f"{role}Role")):
            for logical, one in self.of(kind).items():
                if logical.startswith(name):
                    return [self.plain(statement) for statement in one["PolicyDocument"]["Statement"]]
        raise KeyError(role)

    def plain(self, value: Any) -> Any:
        """A value with every reference replaced by what it will be."""
        match value:
            case {"Ref": name} if len(value) == 1:
                return {"AWS::Region": REGION, "AWS::AccountId": ACCOUNT, "AWS::Partition": "aws"}.get(name, name)
            case {"Fn::GetAtt": [name, "Arn"]}:
                return self.arn(name)
            case {"Fn::GetAtt": [name, "StreamArn"]}:
                return f"{self.arn(name)}/stream/1"
            case {"Fn::Join": [separator, parts]}:
                return separator.join(self.plain(part) for part in parts)
            case dict():
                return {name: self.plain(one) for name, one in value.items()}
            case list():
                return [self.plain(one) for one in value]
            case _:
                return value

    def arn(self, name: str) -> str:
        """The ARN of a resource."""
        match self.resources[name]["Type"].split("::")[1:]:
            case ["S3", "Bucket"]:
                return f"arn:aws:s3:::{name}"
            case ["DynamoDB", "Table"]:
                return f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}"
            case [service, kind]:
                return f"arn:aws:{service.lower()}:{REGION}:{ACCOUNT}:{kind.lower()}/{name}"
        raise KeyError(name)
