"""kill -9 of the server in the middle of appends and streams: nothing acknowledged is lost, clients go on."""

from __future__ import annotations

import http.client
import json
import threading
from pathlib import Path

import tailrace
from tests.console.processes import process
from tests.console.serving import Client

ENDS = (ConnectionError, http.client.HTTPException, TimeoutError, OSError, json.JSONDecodeError)


def append_until_killed(client: Client, name: str, first: int, told: dict[str, int]) -> None:
    """Numbered batches of one producer, one after the other; what was acknowledged is noted."""
    number = first
    while True:
        try:
            path = f"topics/orders/records?producer={name}&batch={number}"
            answer = client.post(path, {"records": [{"value": f"{name}-{number}"}, {"value": f"{name}-{number}'"}]})
        except ENDS:
            return
        assert answer.status == 201, answer.body
        told[name] = number
        number += 1


def test_killed_in_the_middle_of_appends(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        home.create_topic("orders", 2)
    told: dict[str, int] = {}
    for life in range(1, 4):
        with process(tmp_path / "home") as server:
            threads = []
            for name in ("a", "b", "c"):
                last = server.client.get(f"topics/orders/producers/{name}").json["last"]
                assert last >= told.get(name, 0)
                work = (server.client, name, last + 1, told)
                threads.append(threading.Thread(target=append_until_killed, args=work))
                threads[-1].start()
            while any(told.get(name, 0) < 10 * life for name in ("a", "b", "c")):
                assert all(thread.is_alive() for thread in threads)
                threads[0].join(0.01)
            server.kill()
            for thread in threads:
                thread.join(60)
    with tailrace.open(tmp_path / "home") as home:
        values = [r.value.decode() for r in home.topic("orders").records() if r.value is not None]
    assert len(values) == len(set(values))
    for name, last in told.items():
        mine = {value for value in values if value.startswith(f"{name}-")}
        assert {f"{name}-{n}{mark}" for n in range(1, last + 1) for mark in ("", "'")} <= mine
        assert len(mine) in (2 * last, 2 * last + 2)


def test_killed_in_the_middle_of_takes(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        queue = home.queue("mails", shards=2, attempts=50)
        queue.push_many([f"m{n}" for n in range(60)])
        acked: list[str] = []
        doubted: list[str] = []
        for _ in range(2):
            with process(tmp_path / "home") as server:
                ended = len(acked) + 15
                work = threading.Thread(target=work_until_killed, args=(server.client, acked, doubted))
                work.start()
                while len(acked) < ended:
                    assert work.is_alive()
                    work.join(0.01)
                held = server.client.post("queues/mails/leases", {"most": 3, "seconds": 600}).json["leases"]
                server.kill()
                work.join(60)
            assert queue.stats().acked >= len(acked)
        with process(tmp_path / "home") as server:
            late = server.client.post(f"queues/mails/leases/{held[0]['lease']}/ack")
            assert (late.status, late.json["title"]) == (409, "Fenced")
            while queue.stats().backlog:
                work_once(server.client, acked, doubted)
        assert queue.stats().dead == 0
    assert {f"m{n}" for n in range(60)} == {*acked, *doubted}
    assert len(doubted) <= 2  # an acknowledgement that was cut off may be stored: one for each death


def work_once(client: Client, acked: list[str], doubted: list[str]) -> None:
    taken = client.post("queues/mails/leases", {"most": 5, "wait": 20}).json["leases"]
    for lease in taken:
        try:
            done = client.post(f"queues/mails/leases/{lease['lease']}/ack")
        except ENDS:
            doubted.append(lease["json"])
            raise
        if done.status == 409:  # on a busy machine the server's beat can be late: the message comes again
            continue
        assert done.status == 200, done.body
        acked.append(lease["json"])


def work_until_killed(client: Client, acked: list[str], doubted: list[str]) -> None:
    while True:
        try:
            work_once(client, acked, doubted)
        except ENDS:
            return


def test_a_follower_goes_on_with_the_next_server(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        orders = home.create_topic("orders", 2)
        seen: list[str] = []
        cursor = ""
        for life in range(3):
            with process(tmp_path / "home") as server:
                orders.append([(b"%d" % n, b"%d-%d" % (life, n)) for n in range(20)])
                headers = {"Accept": "text/event-stream", **({"Last_Event_ID": cursor} if cursor else {})}
                with server.client.stream("topics/orders/records", **headers) as stream:
                    for _ in range(13):  # of 20: the rest comes from the next server
                        cursor, value = next_record(stream)
                        seen.append(value)
                    server.kill()
        with process(tmp_path / "home") as server:
            after = server.client.get(f"topics/orders/records?from={cursor}").json["records"]
            seen += [record["value"] for record in after]
    assert len(seen) == len(set(seen)) == 60


def next_record(stream: http.client.HTTPResponse) -> tuple[str, str]:
    cursor = ""
    while True:
        line = stream.readline().decode().rstrip("\n")
        if line.startswith("id: "):
            cursor = line[4:]
        if line.startswith("data: "):
            return cursor, json.loads(line[6:])["value"]
