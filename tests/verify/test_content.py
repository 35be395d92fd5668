"""The content of revisions that earlier versions built: what cannot be compared is skipped, never passed."""

from __future__ import annotations

from verifykit import Stack, by_name

from stackyard.make.hashes.tree import tree_hash


def test_without_a_note_bytes_are_skipped_with_the_reason(stack: Stack, no_systems: None) -> None:
    for deep in (False, True):
        found = by_name(stack.verify("content", deep=deep), "content")
        assert (found["files"].status, found["unchanged by the checks"].status) == ("skipped", "passed")
        assert "built by an earlier version" in found["files"].detail and not found["files"].required


def test_a_recorded_hash_of_the_tree_is_compared(stack: Stack, no_systems: None) -> None:
    stack.change(tree_hash=tree_hash(stack.prefix))
    assert by_name(stack.verify("content", deep=True), "content")["files"].status == "passed"
    (stack.prefix / "pyvenv.cfg").write_text("home = /elsewhere\n")
    assert by_name(stack.verify("content", deep=True), "content")["files"].status == "failed"
    assert by_name(stack.verify("content"), "content")["files"].status == "skipped"
