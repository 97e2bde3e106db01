"""Errors of MySQL, MariaDB and their driver, translated into tailrace's errors, each with advice for the operator.

`Unavailable` passes without an operator: no connection, a restart, a lock.  `NotReady` needs one: a password, a right,
a setting, a missing table.  `Rejected` is about the data.  `PositionLost`: the server no longer has the log.
"""

from __future__ import annotations

import re

from tailrace.adaptors.mysql import names
from tailrace.errors import NotReady, Rejected, TailraceError, Unavailable

LOST_LOG = 1236
"""The server cannot send its binlog from the requested position."""
NOT_THERE = (1051, 1146, 1049)
"""Numbers of errors about a table or a database that does not exist."""
LOCKED = (1205, 1213, 1099, 1100, 3572)
"""Numbers of errors about locks: the wait took too long, or the server rolled this session back to end a deadlock."""
_PASSING = {1040, 1043, 1053, 1077, 1078, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1205, 1213, 1226, 1290, 1317,
            1412, 1792, 1836, 1927, 2003, 2006, 2013, 2055, 3024, 3100, 3101, 3169, 4031}  # fmt: skip
"""Numbers of errors that pass: too many connections, shutdown, network, locks, a server that is read-only for now, a
table that was altered since the snapshot that should read it."""
ABOUT_DATA = {1048, 1062, 1264, 1265, 1292, 1366, 1406, 1416, 1425, 1426, 1451, 1452, 1690, 3140, 3819, 4025}
"""Numbers of errors about data: null, duplicate key, out of range, too long, wrong type, a constraint."""
_GRANT = re.compile(r"(\w+(?: \w+)?) command denied to user .* for table (.+)$", re.IGNORECASE)
_DATABASE = re.compile(r"to database '([^']+)'")
_NEEDED = re.compile(r"need \(at least one of\) the ([A-Z_, ]+) privilege")


def code_of(error: BaseException) -> int:
    """Return the number of the server's or the driver's error; 0 if it has none."""
    first = error.args[0] if error.args else 0
    return first if isinstance(first, int) else 0


def text_of(error: BaseException) -> str:
    """Return the first line of an error's message, without the error's number."""
    said = str(error.args[1]) if len(error.args) > 1 else str(error)
    return said.strip().splitlines()[0] if said.strip() else type(error).__name__


def refused(error: BaseException, where: str, user: str, database: str) -> TailraceError:
    """Return the error that says why no connection could be made, with advice."""
    code, text = code_of(error), text_of(error)
    if code in (1045, 1698):
        return NotReady(f"MySQL at {where}: {text}; check user and password in the uri")
    if code == 1044:
        return NotReady(f"MySQL at {where}: {text}; as an administrator: GRANT SELECT ON `{database}`.* TO {user};")
    if code == 1049:
        return NotReady(f"MySQL at {where}: {text}; create it, or name another one in the uri")
    if code == 1130:
        return NotReady(f"MySQL at {where}: {text}; CREATE USER {user} for this host, or connect from another")
    if "certificate" in text.lower():
        return NotReady(f"MySQL at {where}: {text}; give the server's root certificate by ssl-ca= in the uri")
    if "ssl" in text.lower() and code != 2013:
        return NotReady(f"MySQL at {where}: {text}; use ssl-mode=PREFERRED in the uri, or switch TLS on in the server")
    if "cryptography" in text:
        return NotReady(f"MySQL at {where}: {text}; pip install 'tailrace[mysql]', or use TLS (ssl-mode=REQUIRED)")
    return Unavailable(
        f"MySQL at {where} cannot be reached: {text}; is it running there, and are host and port in the uri right?"
    )


def failed(error: BaseException, where: str, doing: str, user: str, namespace: str = "") -> TailraceError:
    """Return the error that says why a statement failed; `doing` names the step."""
    code, text = code_of(error), text_of(error)
    said = f"MySQL at {where}, {doing}: {text}"
    if code in ABOUT_DATA:
        return Rejected(said, namespace=namespace)
    if code in _PASSING or code == 0 or isinstance(error, OSError):
        return Unavailable(said)
    return NotReady(f"{said} (error {code}){_hint(code, text, user, namespace)}")


def _hint(code: int, text: str, user: str, namespace: str) -> str:
    if code == 1142 and (denied := _GRANT.search(text)):
        table = names.quote(*names.parts(namespace, "")) if namespace else denied[2].replace("'", "`")
        return f"; as an administrator: GRANT {denied[1].upper()} ON {table} TO {user};"
    if code == 1227 and (needed := _NEEDED.search(text)):
        return f"; as an administrator: GRANT {needed[1].split(',')[-1].strip()} ON *.* TO {user};"
    if code == 1044 and (database := _DATABASE.search(text)):
        return f"; as an administrator: GRANT ALL ON `{database[1]}`.* TO {user};"
    return ""
