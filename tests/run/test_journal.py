"""Journals: each completion that a killed attempt sampled enters the next attempt exactly once."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from mclabel.core.records import Completion, Outcome, Rollout, Solution, Step
from mclabel.labeling.journal import make_rollout_line, make_solution_line, parse_entry
from mclabel.run.shards import durable
from mclabel.run.shards.journal import BlockJournal, delete_journal, read_journal, write_journal
from mclabel.run.shards.store import Store


def rollout(index: int, text: str = "so \\boxed{1}") -> Rollout:
    return Rollout(
        problem_id="p",
        prefix_id="x",
        index=index,
        seed=2**62 + index,
        text=text,
        num_tokens=len(text),
        finish_reason="stop",
        prediction="1",
        outcome=Outcome.RIGHT,
    )


def solutions_in(store: Store, block: str) -> dict[tuple[str | int, ...], Solution]:
    """Return the solutions in a block's journals, by problem id and sample index."""
    entries = read_journal(store, block, parse_entry)
    contents = {key[1:]: entry.content for key, entry in entries.items() if key[0] == "solution"}
    return {key: content.solution for key, content in contents.items()}


def rollouts_in(store: Store, block: str) -> dict[tuple[str | int, ...], Rollout]:
    """Return the rollouts in a block's journals, by completer, prefix id and rollout index."""
    entries = read_journal(store, block, parse_entry)
    return {key[1:]: entry.content.rollout for key, entry in entries.items() if key[0] == "rollout"}


def completion(text: str) -> Completion:
    return Completion(ids=tuple(map(ord, text)), text=text, finish_reason="stop")


SOLUTION = Solution(
    id="s",
    problem_id="p",
    sample_index=3,
    text="a\nb\u2028",
    ids=(97, 10, 98, 8232),
    steps=(Step(text="a\n", end=2), Step(text="b\u2028", end=4)),
    finish_reason="length",
    origin="sampled",
    prediction=None,
    outcome=Outcome.TRUNCATED,
)


def test_the_next_attempt_takes_each_completion_once(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    journal = BlockJournal(store, "b", "one", parse_entry)
    ids = completion("so \\boxed{1}").ids
    journal.add(lambda: make_solution_line(SOLUTION))
    journal.add(lambda: make_rollout_line(rollout(0), ids))
    journal.flush()
    journal.flush()  # without new entries, no file is written
    journal.add(lambda: make_rollout_line(rollout(2), ids))
    journal.flush()
    assert store.names("journals") == [f"journals/b/one.0000{n}.jsonl.gz" for n in (0, 1)]
    journal = BlockJournal(store, "b", "two", parse_entry)
    journal.read()
    taken = journal.take(("solution", "p", 3))
    assert taken is not None and taken.solution == SOLUTION and not taken.failed
    assert journal.take(("solution", "p", 3)) is None
    assert journal.take(("rollout", "policy", "x", 1)) is None
    taken = journal.take(("rollout", "policy", "x", 2))
    assert taken is not None and taken.rollout == rollout(2)
    assert taken.completion == completion("so \\boxed{1}")
    assert journal.num_replayed == 2
    assert journal.num_replayed_tokens == len(SOLUTION.ids) + rollout(2).num_tokens
    journal.flush()
    assert len(store.names("journals")) == 2  # replayed entries are not written again
    journal.delete()
    assert store.names("journals") == []


def test_of_two_attempts_the_first_by_name_counts(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for attempt, text in (("b", "late"), ("a", "early")):
        write_journal(store, "block", attempt, 0, [make_rollout_line(rollout(0, text), (1,))])
    assert rollouts_in(store, "block")["policy", "x", 0].text == "early"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x1f\x8b\x08torn",
        b"{}",
        gzip.compress(b"[]", mtime=0),
        gzip.compress(b'{"format":1}\n{"solution":{"ids":[1]}}', mtime=0),
        gzip.compress(b'{"format":1}\n{"another task\'s":1}', mtime=0),
    ],
)
def test_a_torn_journal_costs_what_it_held(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(str(tmp_path))
    second = replace(SOLUTION, sample_index=4)
    write_journal(store, "b", "a", 0, [make_solution_line(SOLUTION)])
    write_journal(store, "b", "a", 1, [make_solution_line(second)])
    (tmp_path / "journals/b/a.00000.jsonl.gz").write_bytes(content)
    assert solutions_in(store, "b") == {("p", 4): second}
    assert "journals/b/a.00000.jsonl.gz: damaged" in caplog.text
    assert "its work is done again" in caplog.text


def test_a_block_s_journals_leave_no_empty_folder(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for block in ("a", "b"):
        write_journal(store, block, "one", 0, [make_solution_line(SOLUTION)])
    delete_journal(store, "a")
    assert [path.name for path in (tmp_path / "journals").iterdir()] == ["b"]
    delete_journal(store, "b")
    delete_journal(store, "b")
    assert not (tmp_path / "journals").exists()


def test_a_folder_that_is_removed_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = durable._make_folder
    num_removals = 2

    def removed_at_once(folder: Path, root: Path) -> None:
        nonlocal num_removals
        made(folder, root)
        if num_removals:
            num_removals -= 1
            folder.rmdir()

    monkeypatch.setattr(durable, "_make_folder", removed_at_once)
    write_journal(Store(str(tmp_path)), "b", "a", 0, [make_solution_line(SOLUTION)])
    assert solutions_in(Store(str(tmp_path)), "b") == {("p", 3): SOLUTION}


def test_what_a_failing_store_refused_is_written_by_the_next_flush(tmp_path: Path) -> None:
    blocked = tmp_path / "journals"
    blocked.write_text("a file where the folder should be")
    store = Store(str(tmp_path))
    journal = BlockJournal(store, "b", "a", parse_entry)
    journal.add(lambda: make_solution_line(SOLUTION))
    with pytest.raises(Exception, match="journals"):
        journal.flush()
    blocked.unlink()
    journal.flush()
    assert solutions_in(store, "b") == {("p", 3): SOLUTION}
