"""A network that cuts connections, loses answers and is slow: nothing is lost, and a repeat can be told."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.adaptors.rabbitmq.place import Place
from tests.adaptors.rabbitmq.test_faults import Work, once, reached
from tests.pipeline.runs import until
from tests.servers.process import HOST
from tests.servers.proxy import Fault, Proxy, proxied

pytestmark = [pytest.mark.server, pytest.mark.processes, pytest.mark.timeout(300)]
FAULTS: tuple[Fault, ...] = ("reset_after", "cut_before", "cut_after", "reset_before", "delay")
PORT = 5672


@pytest.fixture
def proxies(place: Place) -> Iterator[tuple[Proxy, Proxy]]:
    """The ways to the broker for the adaptor: for queues, and for streams."""
    queues = place.uri.rpartition("@")[2].partition("/")[0]
    with proxied(queues) as first, proxied(f"{HOST}:{place.stream_port}") as second:
        yield first, second


def test_sources_and_a_sink_over_it(place: Place, proxies: tuple[Proxy, Proxy]) -> None:
    port, stream_port = (int(one.url.rpartition(":")[2]) for one in proxies)
    at = place.uri.rpartition("@")[2].partition("/")[0]
    far = Place(place.uri.replace(at, f"{HOST}:{port}"), stream_port, place.prefix)
    place.make("orders")
    place.make("copy")
    place.make("log", x_queue_type="stream")
    work, rng, sent = Work(far), random.Random(1), 0
    with ThreadPoolExecutor(3) as pool:
        running = [
            pool.submit(work.follow, "orders", queues=["orders"], key="none", prefetch=20),
            pool.submit(work.follow, "log", streams=["log"], key="none"),
            pool.submit(work.write),
        ]
        try:
            for fault in FAULTS:
                for proxy in proxies:
                    struck = proxy.hit
                    with proxy.failing(fault, 0.2, times=2, at=rng.randrange(500)):
                        deadline = struck + 1

                        def send_until_it_struck(proxy: Proxy = proxy, deadline: int = deadline) -> bool:
                            nonlocal sent
                            place.send("orders", [{"n": sent}], message_id=f"id-{sent}")
                            place.send("log", [{"n": sent}])
                            sent += 1
                            return proxy.hit >= deadline

                        until(send_until_it_struck)
                until(_unless_ended(running, reached(work, sent, work.written + 20)))
        finally:
            work.stop.set()
        for one in running:
            one.result(60)
    assert work.faults, "it was never seen to fail"
    assert sorted(work.read["orders"]) == list(range(sent)), "each message with an id once"
    assert work.read["log"] == list(range(sent)), "each message of a stream once, in order"
    copied = [(one.properties.message_id, one.headers["offset"]) for one in place.take("copy")]
    assert {offset for _, offset in copied} >= set(range(work.written)), "what was confirmed is there"
    assert len(set(copied)) == len({id for id, _ in copied}), "a repeat has the id of the first"
    assert once(copied) == sorted(once(copied)), "and the first of each came in order"


def _unless_ended(running: list[Future[None]], what: Callable[[], object]) -> Callable[[], object]:
    """The same, but a worker that has ended with an error raises it."""

    def asked() -> object:
        for one in running:
            if one.done():
                one.result()
        return what()

    return asked
