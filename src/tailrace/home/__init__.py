"""Homes: where a tailrace lives, and the way to its topics, events, queues and tables.

`url` parses the URLs that `tailrace.open` takes, `store` opens the table and the objects behind a URL, `home_item` is
what a home stores about itself, `open_homes` keeps homes open for a process.

Used from outside: open_homes.
Read in this order: url, store, home_item, home, open_homes.
"""

from tailrace.home.home import Home, open
from tailrace.home.home_item import FORMAT
from tailrace.home.store import store_of
from tailrace.home.url import DATABASE, DEFAULT, folder_of, is_there, s3_options, shown

__all__ = [
    "DATABASE",
    "DEFAULT",
    "FORMAT",
    "Home",
    "folder_of",
    "is_there",
    "open",
    "s3_options",
    "shown",
    "store_of",
]
