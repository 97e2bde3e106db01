"""Homes on network file systems."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailrace
from tailrace.errors import HomeError
from tailrace.storage.local import mounts
from tailrace.storage.local.mounts import ALLOWED, mount_of


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system with a local disk, a share in it whose name has a blank, and a local disk in that one."""
    share = str(tmp_path / "our share").replace(" ", r"\040")
    (tmp_path / "our share" / "local").mkdir(parents=True)
    lines = [
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw",
        f"30 22 0:44 / {share} rw,relatime shared:9 - autofs systemd-1 rw",
        f"31 30 0:45 / {share} rw,relatime shared:10 - nfs4 server:/export rw,vers=4.2",
        f"32 31 254:1 / {share}/local rw - xfs /dev/vdb rw",
    ]
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "mountinfo")
    monkeypatch.delenv(ALLOWED, raising=False)
    (tmp_path / "mountinfo").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_a_home_on_a_network_file_system_is_refused_and_not_made(mounted: Path) -> None:
    with pytest.raises(
        HomeError, match=r"nfs4 at .*our share\).*use a local disk, or s3://.*TAILRACE_NETWORK_HOME=allow"
    ):
        tailrace.open(mounted / "our share" / "shop" / "home")
    assert not (mounted / "our share" / "shop").exists()


def test_also_behind_a_link(mounted: Path) -> None:
    (mounted / "link").symlink_to(mounted / "our share")
    with pytest.raises(HomeError, match="nfs4"):
        tailrace.open(mounted / "link" / "home")


def test_unless_somebody_says_so(mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED, "allow")
    with tailrace.open(mounted / "our share" / "home") as home:
        home.topic("t", 1)


def test_local_disks_below_and_beside_it_are_homes(mounted: Path) -> None:
    for folder in (mounted / "our share" / "local" / "home", mounted / "our shares"):
        tailrace.open(folder).close()


def test_what_this_system_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if mounts.MOUNTS.exists():
        assert mount_of(Path("/proc/self")) == (Path("/proc"), "proc")
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "none")
    assert mount_of(tmp_path) is None
