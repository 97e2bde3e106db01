"""`tailrace queue`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tailrace
from tailrace.cli.queue.queues import ORDER, app
from tailrace.cli.queue.workers import handler_of
from tailrace.errors import BadInput
from tests.cli.runs import PROGRAM, Cli
from tests.cli.terminal import Terminal
from tests.queue.conftest import until

HANDLER = """
import sys

def notes(envelope):
    with open("notes", "a") as out:
        out.write(f"{envelope.message}\\n")

def fails(envelope):
    raise ValueError("no")
"""


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    made = Cli(tmp_path / "home")
    made("queue", "create", "mail", "--shards", 2, "--set", "attempts=1")
    return made


def test_from_push_to_dead_letter(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "handlers_of_mail.py").write_text(HANDLER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert cli("queue", "push", "mail", '{"n": 1}', "text", "--key", "k").out == "pushed 2 messages\n"
    assert cli("queue", "push", "mail", "once", "--dedup", "x").out == "pushed 1 message\n"
    assert "1 were there already" in cli("queue", "push", "mail", "once", "--dedup", "x").out
    assert "once" in cli("queue", "tail", "mail").out
    assert "3" in cli("queue", "list").out
    cli("queue", "work", "mail", "handlers_of_mail:notes", "--drain")
    assert sorted((tmp_path / "notes").read_text().splitlines()) == ["once", "text", "{'n': 1}"]
    cli("queue", "push", "mail", "bad")
    cli("queue", "work", "mail", "handlers_of_mail:fails", "--drain")
    assert "ValueError: no" in cli("queue", "dead", "mail").out
    assert cli("queue", "dead", "mail", "--requeue-all").out == "put 1 message back\n"
    now = json.loads(cli("queue", "stats", "mail", "--json").out)
    assert (now["acked"], now["dead"], now["backlog"]) == (3, 1, 1)
    assert "paused" in cli("queue", "pause", "mail").out
    assert "paused" in cli("queue", "stats", "mail").out
    cli("queue", "play", "mail")
    cli("queue", "purge", "mail", "--yes")
    assert json.loads(cli("queue", "stats", "mail", "--json").out)["purged"] == 1


def test_what_is_refused(cli: Cli) -> None:
    assert "did you mean 'mail'" in cli.fails("queue", "replay", "mial", "--from", "0").err
    assert "exists already" in cli.fails("queue", "create", "mail").err
    assert "SHARD:OFFSET" in cli.fails("queue", "explain", "mail", "7").err
    for wrong in ("nothing", "no.such.module:f", "json:nothing", "json:__name__"):
        with pytest.raises(BadInput, match="handler"):
            handler_of(wrong)


def test_lines_that_are_no_text_are_pushed_as_bytes_or_refused(cli: Cli) -> None:
    lines = b"a\xff\r\n" + b"[" * 100_000 + b"\n"
    assert "message 1 is no text in UTF-8; --raw" in cli.fails("queue", "push", "mail", input=lines).err
    assert cli("queue", "push", "mail", "--raw", input=lines).out == "pushed 2 messages\n"
    assert cli("queue", "push", "mail", input=b"text\r\n" + lines.split(b"\n")[1]).out == "pushed 2 messages\n"
    with tailrace.open(cli.home) as home:
        pushed = {record.value for record in home.topic("mail").records()}
    assert pushed == {b"a\xff\r", b"[" * 100_000, b'"text"', b'"' + b"[" * 100_000 + b'"'}


def test_processes_that_die_are_started_again_and_end_cleanly(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "handlers_of_mail.py").write_text(HANDLER)
    words = ["queue", "work", "mail", "handlers_of_mail:notes", "-p", "2", "--home", str(tmp_path / "home")]
    run = [sys.executable, "-c", "from tailrace.cli.main import main; main()", *words]
    with (
        subprocess.Popen(run, cwd=tmp_path, stderr=subprocess.PIPE) as parent,
        tailrace.open(tmp_path / "home") as home,
    ):
        queue = home.queue("mail")
        queue.push_many(range(20))
        try:
            assert queue.drain(60)
            until(lambda: len({one.owner for one in queue.stats().shards.values() if one.owner}) == 2)
        finally:
            parent.send_signal(signal.SIGTERM)
            parent.wait(60)
        assert not any(one.owner for one in queue.stats().shards.values()), "they gave their shards back"
    assert len((tmp_path / "notes").read_text().splitlines()) == 20


def test_a_queue_that_a_typo_makes_is_told_of(cli: Cli) -> None:
    ran = cli("queue", "push", "mial", "hello")
    assert ran.out == "pushed 1 message\n"
    assert "made queue 'mial' with 24 shards; did you mean 'mail'? `tailrace queue delete mial` removes" in ran.err
    assert "made" not in cli("queue", "push", "mial", "hello").err
    cli("queue", "delete", "mial", "--yes")
    assert "mial" not in cli("queue", "list").out


def test_a_paused_queue_is_listed_as_paused(cli: Cli) -> None:
    assert cli("queue", "list").rows[1][-1] == "-"
    cli("queue", "pause", "mail")
    assert cli("queue", "list").rows[1][-1] == "paused"


def test_the_group_of_a_queue_is_not_moved_by_hand(cli: Cli) -> None:
    cli("queue", "push", "mail", "hello")
    for words in (["reset", "queue", "--to", "latest"], ["delete", "queue"]):
        ran = cli.fails("group", *words, "--yes", "--force")
        assert "belongs to the queue 'mail'" in ran.err
        assert "tailrace queue replay mail" in ran.err
    with tailrace.open(cli.home) as home:
        with pytest.raises(BadInput, match="choose another group"):
            home.topic("mail").consumer("queue")
        assert home.queue("mail").stats().backlog == 1
        home.topic("plain", partitions=1).consumer("queue").close()
    assert "partition" in cli("group", "reset", "queue", "--topic", "plain", "--to", "latest", "--yes").out.lower()


def test_rebalance_waits_until_shards_are_even(cli: Cli) -> None:
    assert "no consumers yet" in cli("queue", "rebalance", "mail").out
    with tailrace.open(cli.home) as home:
        queue = home.queue("mail")
        with queue.tail(print, name="w1"):
            until(lambda: queue.stats().consumers == {"w1": 2})
            with queue.tail(print, name="w2"):
                assert cli("queue", "rebalance", "mail", "--json").json["consumers"] == {"w1": 1, "w2": 1}
                assert queue.rebalance(5, timeout=30) in ({"w1": 3, "w2": 2}, {"w1": 2, "w2": 3})


def test_a_handler_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "handlers_of_post.py").write_text("import nowhere_to_be_found\n")
    (tmp_path / "handlers_of_fax.py").write_text("def send(envelope): ...\nTRIES = 3\n")
    with pytest.raises(BadInput, match=rf"No module named 'fax'; looked in {tmp_path}"):
        handler_of("fax:send")
    with pytest.raises(BadInput, match=r"No module named 'nowhere_to_be_found'$"):
        handler_of("handlers_of_post:send")
    with pytest.raises(BadInput, match=r"fax\.py\) has no 'sned'; did you mean 'send'\? functions there: send"):
        handler_of("handlers_of_fax:sned")


def test_a_handler_that_no_process_can_use_is_refused_before_any_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "handlers_of_gas.py").write_text("def send(envelope):\n    yield\n")
    (tmp_path / "handlers_of_oil.py").write_text("raise SystemExit(0)\n")
    with pytest.raises(BadInput, match="without `yield`"):
        handler_of("handlers_of_gas:send")
    with pytest.raises(BadInput, match="cannot be imported: SystemExit: 0"):
        handler_of("handlers_of_oil:send")


def test_stats_that_renew_themselves_fit_a_narrow_terminal(cli: Cli) -> None:
    cli("queue", "push", "mail", "hello")
    env = {**os.environ, "TAILRACE_HOME": str(cli.home)}
    with Terminal([PROGRAM, "queue", "stats", "mail", "--watch"], env, columns=44) as terminal:
        terminal.wait_for("Ctrl-C ends")
        shown = terminal.wait_for("all")
        assert "BACKLOG" in shown
        assert "ROUTED" not in shown
        os.killpg(terminal.process.pid, signal.SIGINT)
        terminal.process.wait(30)
    assert "Traceback" not in terminal.seen


def test_stats_leave_out_shards_that_nothing_happened_in(cli: Cli) -> None:
    cli("queue", "create", "news", "--shards", "24")
    cli("queue", "push", "news", "a", "--key", "k")
    shown = cli("queue", "stats", "news").out.splitlines()
    assert shown[-1] == "23 of 24 shards have had no message, and no consumer has them"
    assert [line.split()[0] for line in shown[-3:-1]][1] == "all"
    assert len(shown) < 10


def test_a_deletion_asks_and_says_what_would_be_gone(cli: Cli) -> None:
    cli("queue", "push", "mail", "a", "b")
    question = "Delete queue 'mail' for good, with 2 messages that are not done and 0 dead letters?"
    asked = cli.fails("queue", "delete", "mail", input="n\n")
    assert question in asked.err
    assert "mail" in cli("queue", "list").out
    assert "`tailrace queue delete mail` deletes both" in cli.fails("topic", "delete", "mail", "--yes").err
    assert "deleted queue 'mail'" in cli("queue", "delete", "mail", input="y\n").out
    assert cli("topic", "list", "--json").json == []
    assert "there is no queue 'mail'" in cli.fails("queue", "delete", "mail", "--yes").err


def test_processes_end_when_their_queue_is_deleted(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "handlers_of_mail.py").write_text(HANDLER)
    words = ["queue", "work", "mail", "handlers_of_mail:notes", "-p", "2", "--home", str(tmp_path / "home")]
    run = [sys.executable, "-c", "from tailrace.cli.main import main; main()", *words]
    with subprocess.Popen(run, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as parent:
        with tailrace.open(tmp_path / "home") as home:
            until(lambda: len(home.queue("mail").stats().consumers) == 2, 60)
            home.queue("mail").delete(sure=True)
        _, told = parent.communicate(timeout=60)
        assert parent.returncode == 1
    assert "handling 'mail' with 2 processes; Ctrl-C ends" in told
    assert "queue 'mail' was deleted" in told
    assert "Traceback" not in told
    with tailrace.open(tmp_path / "home") as home:
        assert home.queues() == [], "no process has made it again"


def test_a_second_signal_reaches_every_process(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "handlers_of_mail.py").write_text(
        "import time\n\ndef hangs(envelope):\n    open(f'hangs-{envelope.message}', 'w').close()\n    time.sleep(600)\n"
    )
    cli("queue", "push", "mail", "1", "2")
    words = ["queue", "work", "mail", "handlers_of_mail:hangs", "-p", "2", "--home", str(tmp_path / "home")]
    run = [sys.executable, "-c", "from tailrace.cli.main import main; main()", *words]
    with subprocess.Popen(run, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stderr is not None
        until(lambda: len(list(tmp_path.glob("hangs-*"))) == 2, 60)
        parent.send_signal(signal.SIGINT)
        assert any("Ctrl-C again does not wait" in line for line in parent.stderr)
        parent.send_signal(signal.SIGINT)
        parent.communicate(timeout=20)
    assert json.loads(cli("queue", "stats", "mail", "--json").out)["backlog"] == 2


def test_a_dead_letter_is_shown_whole_and_not_listed_when_it_was_put_back(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "handlers_of_mail.py").write_text(HANDLER)
    cli("queue", "push", "mail", "a", "b", "--key", "ada")
    run = [sys.executable, "-c", "from tailrace.cli.main import main; main()"]
    words = ["queue", "work", "mail", "handlers_of_mail:fails", "--drain", "--home", str(tmp_path / "home")]
    ran = subprocess.run([*run, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert "failed, attempt 1 of 1, and goes to the dead letters: ValueError: no" in ran.stderr
    assert "handlers_of_mail.py" in ran.stderr
    assert "handlers.py" not in ran.stderr, "the traceback begins in the handler"
    assert "handled 0 messages, 2 attempts failed, 2 dead letters: `tailrace queue dead mail`" in ran.stderr
    assert [row[0] for row in cli("queue", "dead", "mail").rows] == ["NUMBER", "0", "1"]
    shown = cli("queue", "dead", "mail", "--show", 1).out
    assert all(word in shown for word in ("ada", "ValueError: no", '"b"', "given up by"))
    assert cli("queue", "dead", "mail", "--show", 1, "--json").json["reason"] == "ValueError: no"
    assert "has no dead letter 7" in cli.fails("queue", "dead", "mail", "--show", 7).err
    cli("queue", "dead", "mail", "--requeue", 0)
    listed = cli("queue", "dead", "mail").out.splitlines()
    assert (listed[1].split()[0], listed[-1]) == ("1", "1 dead letter put back before")
    cli("queue", "dead", "mail", "--requeue-all")
    assert cli("queue", "dead", "mail").out == "no dead letters, 2 dead letters put back before\n"


def test_help_lists_every_command_in_order(cli: Cli) -> None:
    assert [one.name or one.callback.__name__ for one in app.registered_commands] == list(ORDER)  # type: ignore[union-attr]
