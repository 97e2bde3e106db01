"""What is said when something is wrong: one line, with what mends it, and never a password; and TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailrace.adaptors.contract import Reader, Writer
from tailrace.adaptors.registry import make_reader as reader
from tailrace.adaptors.registry import make_writer as writer
from tailrace.errors import BadSetting, NotReady, TailraceError, Unavailable
from tests.adaptors.rabbitmq.place import Place
from tests.adaptors.rabbitmq.sink.test_writer import rows
from tests.servers.process import free_ports
from tests.servers.proxy import proxied
from tests.servers.rabbitmq import RabbitServer

ADAPTOR = "tailrace.adaptors.rabbitmq:adaptor"


def ends(uri: str, **settings: Any) -> list[Reader | Writer]:
    """Both ends, made as a pipeline does."""
    source = {"uri": uri, "queues": ["orders"], **settings}
    return [reader(ADAPTOR, source), writer(ADAPTOR, {"uri": uri, "routing_key": "orders", **settings})]


def said(uri: str, kind: type[TailraceError], **settings: Any) -> list[str]:
    """What both ends say when they are checked."""
    found = []
    for end in ends(uri, **settings):
        with pytest.raises(kind) as caught:
            end.check()
        end.close()
        found.append(str(caught.value))
        assert "\n" not in found[-1]
        assert "password-of" not in found[-1] + repr(end)
    return found


def test_a_wrong_host() -> None:
    (port,) = free_ports(1)
    for address in (f"127.0.0.1:{port}", "no-such-host.invalid:5672"):
        for text in said(f"amqp://me:password-of-me@{address}/", Unavailable):
            assert address in text
            assert "is it running there, and are host, port and TLS in the uri right?" in text


def test_a_wrong_password(rabbitmq: RabbitServer) -> None:
    for text in said(rabbitmq.uri("guest:password-of-another"), NotReady):
        assert "rabbitmqctl change_password guest …" in text
        assert "rabbitmqctl add_user guest …" in text


def test_a_login_that_the_network_cuts_is_no_wrong_password(rabbitmq: RabbitServer) -> None:
    uri = rabbitmq.uri()
    address = uri.rpartition("@")[2].partition("/")[0]
    with proxied(address) as proxy:
        far = uri.replace(address, proxy.url.removeprefix("http://"))
        for at in range(0, 540, 20):  # the broker's first answer has some 500 bytes, its answer to the login 20
            with proxy.failing("cut_after", at=at):
                said(far, Unavailable)


def test_a_vhost_that_is_not_there(rabbitmq: RabbitServer) -> None:
    for text in said(rabbitmq.uri(vhost="shop"), NotReady):
        assert "vhost shop not found; rabbitmqctl add_vhost shop" in text


def test_a_user_without_rights(rabbitmq: RabbitServer, place: Place) -> None:
    queue = place.make("orders")
    rabbitmq.ctl("add_user", "limited", "password-of-limited")
    uri = rabbitmq.uri("limited:password-of-limited")
    for text in said(uri, NotReady):
        assert "rabbitmqctl set_permissions -p / limited '.*' '.*' '.*'" in text
    rabbitmq.ctl("set_permissions", "-p", "/", "limited", "^$", "^$", "^$")
    end = writer(ADAPTOR, {"uri": uri, "routing_key": queue})
    with pytest.raises(NotReady, match=r"refused for user 'limited'.*set_permissions -p / limited"):
        end.stage([rows("orders", [1])])


def test_missing_queues_and_streams(place: Place) -> None:
    missing = {
        "queues": r"has no queue .*x'; rabbitmqadmin declare queue name=.*x durable=true$",
        "streams": r"has no stream .*x'; rabbitmqadmin declare queue .*\"x-queue-type\": \"stream\"",
        "super_streams": r"has no super stream .*x'; rabbitmq-streams add_super_stream .*x --partitions 3",
    }
    for kind, text in missing.items():
        with pytest.raises(NotReady, match=text):
            place.reader(**{kind: ["x"]}).check()


def test_queues_of_another_type(place: Place) -> None:
    place.make("classic", x_max_length=1000)
    place.make("quorum", x_queue_type="quorum")
    place.make("stream", x_queue_type="stream")
    place.reader(queues=["classic", "quorum"], streams=["stream"]).check()
    for name in ("classic", "quorum"):
        with pytest.raises(NotReady, match=f"{name} is a queue; name it in queues, not in streams"):
            place.reader(streams=[name]).check()
    with pytest.raises(NotReady, match="stream is a stream; name it in streams, not in queues"):
        place.reader(queues=["stream"]).check()


def test_a_wrong_stream_port(place: Place) -> None:
    place.make("stream", x_queue_type="stream")
    (port,) = free_ports(1)
    with pytest.raises(Unavailable, match=rf"rabbitmq-plugins enable rabbitmq_stream.*{port} its port \(stream_port\)"):
        place.reader(streams=["stream"], stream_port=port).check()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"uri": "http://host/"}, "it must begin with amqp://"),
        ({"uri": "amqp://host:port/"}, "this is no address"),
        ({"uri": "amqp://me:pass@word-of-me@host/x?y=1"}, "are written %3F, %23 and %40"),
        ({"queues": []}, "name what is to be read"),
        ({"queues": [""]}, "a name has 1 to 255 bytes"),
        ({"streams": ["a"], "queues": ["a"]}, "a name is there twice"),
        ({"prefetch": 10, "remember": 5}, "it must be no less"),
        ({"start": "soon"}, "neither earliest, latest nor a time"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(BadSetting, match=text) as caught:
        reader(ADAPTOR, {"uri": "amqp://localhost", "queues": ["a"], **settings}).check()
    assert "word-of" not in str(caught.value)


def test_tls(rabbitmq: RabbitServer, certificates: Path, place: Place) -> None:
    queue = place.make("orders")
    uri = f"amqps://guest:guest@127.0.0.1:{rabbitmq.secured}/"
    ca = {"ca": str(certificates / "ca.pem")}
    with_ca = [reader(ADAPTOR, {"uri": uri, "queues": [queue], **ca})]
    end = writer(ADAPTOR, {"uri": uri, "routing_key": queue, **ca})
    for one in [*with_ca, end]:
        one.check()
    end.stage([rows("orders", range(3))])
    assert len(place.take("orders")) == 3
    for text in said(uri, NotReady):
        assert "check ca for an authority of your own" in text
    for text in said(uri, BadSetting, ca="/no/such/file.pem"):
        assert "must name PEM files" in text
    for text in said(f"amqps://guest:guest@{rabbitmq.url}/", NotReady, **ca):
        assert "that the port is one with TLS" in text
