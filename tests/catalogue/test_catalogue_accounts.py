"""A catalogue belongs to the owner of the yard, also where root publishes; everyone may write one of their own."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from catalogue import yards
from support import accounts as support
from support.accounts import Accounts


@pytest.mark.slow
def test_it_is_written_as_the_owner_of_the_yard(accounts: Accounts, common: Path) -> None:
    anna, dora = accounts.user("anna"), accounts.user("dora")
    yard, www, file = yards.demo(common / "yard", "pytorch"), common / "www", common / "site.yaml"
    file.write_text(
        f"modules: {{formats: [tcl]}}\nyard: {yard.root}\ncatalogue: {{directories: {{site: {www}/software}}}}\n"
    )
    www.mkdir()
    for tree in (yard.root, www):
        support.give(tree, anna)
    words = {"STACKYARD_SITE": str(file), "STACKYARD_HOME": str(yard.root)}
    accounts.as_root("retire", "pytorch/2.5.1", "--on", "2028-01-01", **words)
    found = [www / "software", *(www / "software").rglob("*")]
    assert {path.lstat().st_uid for path in found} == {anna.uid}
    assert {stat.S_IMODE(path.lstat().st_mode) for path in found if path.is_file()} == {0o644}
    page = dora.run("/bin/cat", www / "software/pytorch/2.5.1-py312-1.html").out
    assert "Retired from 2028-01-01" in page
    own = dora.home / "out"
    dora.stackyard("catalogue", "-o", own, **words)
    assert (own / "index.html").stat().st_uid == dora.uid
    refused = dora.stackyard("catalogue", "-o", www / "software", expect=1, **words)
    assert "ermission denied" in refused.err and "Traceback" not in refused.err
    os.chown(www / "software" / "index.html", dora.uid, dora.gid)
    anna.stackyard("catalogue", "-o", www / "software", **words)
    said = accounts.as_root("catalogue", "-o", common / "rooted", expect=1, **words)
    assert "ermission denied" in said.err, "root's command on anna's yard is anna's: the directory is not hers"
