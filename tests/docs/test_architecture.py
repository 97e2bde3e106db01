"""The architecture page: its list of files is what the files say."""

from __future__ import annotations

import re

from tests.docs.test_examples import ROOT
from tools import file_list


def test_the_list_of_files_is_what_they_say() -> None:
    assert file_list.main(["--check"]) == 0, "run python tools/file_list.py"


def test_every_file_says_what_it_is_for() -> None:
    silent = [
        path
        for path in file_list.SOURCE.rglob("*.py")
        if path.name != "_version.py" and not file_list.first_sentence(path)
    ]
    assert not silent


def test_files_that_the_walks_name_are_there() -> None:
    walks = (ROOT / "docs" / "architecture.md").read_text().partition(file_list.HEADING)[0]
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.py)`", walks)
    assert len(named) > 30
    assert not [name for name in named if not (file_list.SOURCE / name).exists()]
