"""MySQL and MariaDB, as a source (copy, then the row binlog) and as a sink (exactly once).

Read in this order: settings, database, packets, catalog, types, gtid, names, errors.
"""

from tailrace.adaptors.contract import Adaptor
from tailrace.adaptors.mysql.settings import MySQLSink, MySQLSource
from tailrace.adaptors.mysql.sink.writer import MySQLWriter
from tailrace.adaptors.mysql.source.reader import MySQLReader

adaptor = Adaptor(
    name="mysql",
    about="MySQL 8.0 and MariaDB 10.6, and newer: copied in parallel, followed by the row binlog; written exactly once",
    reader=MySQLReader,
    reader_settings=MySQLSource,
    writer=MySQLWriter,
    writer_settings=MySQLSink,
    limits="not carried: views, system-versioned tables, foreign keys, collations; tables of XA transactions are "
    "copied again when these commit, and so are those that a session with binlog_format = STATEMENT changes; what its "
    "triggers and functions change is seen only with the right to see them (GRANT TRIGGER; docs/guide/mysql.md)",
    example='uri = "${SHOP_MYSQL}"  # mysql://user:password@host:3306/shop',
)
