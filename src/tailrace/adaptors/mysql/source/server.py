"""The server's settings: checks those that following needs, and names the command that sets each one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tailrace.adaptors.mysql.database import ask, flavor_of
from tailrace.errors import NotReady

WANTED = {
    "log_bin": ("1", "ON"),
    "binlog_format": ("ROW",),
    "binlog_row_image": ("FULL",),
    "binlog_row_metadata": ("FULL",),
    "binlog_row_value_options": ("",),
    "gtid_mode": ("ON",),
}
"""Settings with the accepted values; a setting that the server does not know is not required."""
GTID_MODE = (
    "SET PERSIST enforce_gtid_consistency = ON; SET PERSIST gtid_mode = OFF_PERMISSIVE; "
    "SET PERSIST gtid_mode = ON_PERMISSIVE; SET PERSIST gtid_mode = ON;"
)
DAY = 24 * 3600
"""A day in seconds: a binlog that is kept for less is worth a warning."""


def variables(connection: Any) -> dict[str, str]:
    """Return the server's values of the settings that matter."""
    names = ", ".join(f"'{name}'" for name in (*WANTED, "binlog_expire_logs_seconds", "expire_logs_days"))
    return dict(ask(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"))


def check(connection: Any, where: str) -> None:
    """Raise `NotReady` for the first setting that keeps tailrace from following, with the command that corrects it."""
    found, flavor = variables(connection), flavor_of(connection)
    for name, values in WANTED.items():
        if name in found and found[name].upper() not in values:
            raise NotReady(
                f"MySQL at {where} has {name} = {found[name] or 'OFF'}, so its changes cannot be followed; "
                f"{_command(name, values, flavor)}"
            )
    if "binlog_row_metadata" not in found:
        raise NotReady(f"MySQL at {where} does not know binlog_row_metadata; MySQL 8.0.14 and MariaDB 10.5 do")


def _command(name: str, values: tuple[str, ...], flavor: str) -> str:
    keep = "PERSIST" if flavor == "mysql" else "GLOBAL"
    if name == "log_bin":
        return "in the server's configuration, under [mysqld]: log_bin = binlog, server_id = 1; and restart the server"
    if name == "gtid_mode":
        return f"as an administrator: {GTID_MODE}"
    value = f"'{values[0]}'"
    more = "" if flavor == "mysql" else f" (and {name} = {values[0]} under [mysqld], for the next start)"
    return f"as an administrator: SET {keep} {name} = {value};{more}"


def warnings(connection: Any, where: str) -> Iterator[str]:
    """Yield a warning if the server keeps its binlog for less than a day; nothing else keeps it for a pipeline."""
    found = variables(connection)
    seconds = int(float(found.get("binlog_expire_logs_seconds") or 0))
    seconds = seconds or int(float(found.get("expire_logs_days") or 0) * DAY)
    if 0 < seconds < DAY:
        yield (
            f"MySQL at {where} keeps its binlog for {seconds} s only: a pipeline that is down for longer must copy "
            "afresh; SET PERSIST binlog_expire_logs_seconds = 604800; keeps it for a week"
        )
