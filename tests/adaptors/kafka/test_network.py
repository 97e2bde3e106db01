"""A network that cuts connections, loses answers and is slow: what is written is read once, in its order."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.adaptors.kafka.place import Place
from tests.adaptors.kafka.test_faults import Work, reached
from tests.conftest import started
from tests.pipeline.runs import until
from tests.servers import kafka as servers
from tests.servers.process import HOST, free_ports
from tests.servers.proxy import Fault, Proxy, proxied

pytestmark = [pytest.mark.server, pytest.mark.processes, pytest.mark.timeout(300)]
FAULTS: tuple[Fault, ...] = ("reset_after", "cut_before", "cut_after", "reset_before", "delay")


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    """The only way to a broker: its clients are told this address."""
    ports = free_ports(3)
    with proxied(f"{HOST}:{ports[0]}") as made:
        settings = {"advertised.listeners": f"PLAINTEXT://{made.url.removeprefix('http://')}"}
        with started("Kafka", lambda: servers.kafka(settings=settings, ports=ports)):
            yield made


def test_a_sink_and_a_source_over_it(proxy: Proxy) -> None:
    place = Place(proxy.url.removeprefix("http://"), "network.")
    place.make("copy", 2)
    work, rng = Work(place, source="copy"), random.Random(1)
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(work.follow), pool.submit(work.write)]
        try:
            for fault in FAULTS:
                struck = proxy.hit
                with proxy.failing(fault, 0.2, times=3, at=rng.randrange(2000)):
                    until(lambda struck=struck: proxy.hit >= struck + 3)
                until(reached(work, work.written + 5, work.written + 5))
        finally:
            work.stop.set()
        for one in running:
            with contextlib.suppress(StopIteration):
                one.result(60)
    written = [one.document["id"] for one in place.read("copy")]
    assert sorted(written) == list(range(work.written)), "each once, to readers of committed records"
    assert work.read == sorted(work.read), "in the order of one writer's batches"
    assert work.read == list(range(len(work.read)))
