"""RabbitMQ: a broker with durable queues, and streams where they are asked for."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers.process import HOST, Missing, Server, folder, free_ports, listens, running

DEBIAN = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


@dataclass(frozen=True, slots=True)
class RabbitServer(Server):
    """A broker; `streams` is the port of the stream protocol, `secured` the one with TLS, `management` the one of its
    HTTP API; 0 where it has none."""

    streams: int = 0
    secured: int = 0
    management: int = 0
    env: Mapping[str, str] = field(default_factory=dict)

    def uri(self, user: str = "guest:guest", vhost: str = "") -> str:
        """How a client gets there."""
        return f"amqp://{user}@{self.url}/{vhost}"

    def ctl(self, *words: str, tool: str = "rabbitmqctl") -> str:
        """What one of the broker's own commands says; it takes a second to start."""
        command = [str(DEBIAN.with_name(tool)), "-n", self.env["RABBITMQ_NODENAME"], *words]
        done = subprocess.run(command, env=dict(self.env), capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise RuntimeError(f"{tool} {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def kill(self) -> None:
        """End it as a power cut does.  The pid of the server is that of a script; the broker's own is in a file."""
        os.kill(int(Path(self.env["RABBITMQ_PID_FILE"]).read_text()), signal.SIGKILL)


@contextlib.contextmanager
def rabbitmq(
    data: Path | None = None,
    *,
    streams: bool = False,
    management: bool = False,
    certificates: Path | None = None,
    ports: Sequence[int] | None = None,
) -> Iterator[RabbitServer]:
    """RabbitMQ on a free port, with a port mapper (epmd) of its own, which would else stay for ever.

    `certificates` is a folder with ca.pem, server.pem and server.key, for a port with TLS.  A broker that comes back
    has the five `ports` that it had."""
    command, epmd = installed()
    port, nodes, mapper, stream_port, secured = ports or free_ports(5)
    with folder(data) as home:
        api = free_ports(1)[0] if management else 0
        plugins = [*(["rabbitmq_stream"] if streams else []), *(["rabbitmq_management"] if management else [])]
        (home / "plugins").write_text(f"[{','.join(plugins)}].")
        (home / "rabbitmq.conf").write_text(_settings(stream_port if streams else 0, secured, certificates, api))
        env = {
            **os.environ,
            "HOME": str(home),  # where Erlang keeps its cookie
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(mapper),
            "RABBITMQ_NODENAME": f"bench-{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(nodes),
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-kernel inet_dist_use_interface {{{HOST.replace('.', ',')}}}",
        }
        waited = [
            port,
            *([stream_port] if streams else []),
            *([secured] if certificates else []),
            *([api] if api else []),
        ]
        with (
            running([epmd, "-address", HOST, "-port", str(mapper)], lambda: listens(mapper), log=home / "epmd.log"),
            running(
                [command], lambda: all(map(listens, waited)), log=home / "server.log", env=env, grace=20, patience=180
            ) as pid,
        ):
            yield RabbitServer(
                "rabbitmq", f"{HOST}:{port}", pid, streams=stream_port if streams else 0,
                secured=secured if certificates else 0, management=api, env=env,
            )  # fmt: skip


def _settings(stream_port: int, secured: int, certificates: Path | None, api: int) -> str:
    lines: dict[str, object] = {"loopback_users": "none"}
    if api:
        lines |= {"management.tcp.ip": HOST, "management.tcp.port": api}
    if stream_port:
        lines |= {
            "stream.listeners.tcp.1": f"{HOST}:{stream_port}",
            "stream.advertised_host": HOST,
            "stream.advertised_port": stream_port,
        }
    if certificates is not None:
        lines |= {"listeners.ssl.1": f"{HOST}:{secured}", "ssl_options.verify": "verify_none"}
        for name, file in (("cacertfile", "ca.pem"), ("certfile", "server.pem"), ("keyfile", "server.key")):
            lines[f"ssl_options.{name}"] = certificates / file
    return "".join(f"{name} = {value}\n" for name, value in lines.items())


def installed() -> tuple[str, str]:
    """The paths of the server's own script and of epmd, from the system's packages if root may install them."""
    if not DEBIAN.exists() and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-qq", "--no-install-recommends", "rabbitmq-server"], capture_output=True)
    epmd = shutil.which("epmd")
    if not DEBIAN.exists() or epmd is None:
        raise Missing(f"no {DEBIAN}; `apt-get install rabbitmq-server` brings it")
    return str(DEBIAN), epmd
