"""Trees of searches in the report: contents, marks, and escaped texts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mclabel.report.page import example as page
from mclabel.report.page.example import convert_trees_to_page_data
from mclabel.run.shards.store import Store
from mclabel.run.shards.trees import StoredCost, StoredNode, StoredTree, write_trees
from tests.support.shown import plain_run, report_page, solution, write_run


def node(
    name: str, parent: str = "", *, text: str = "", weight: float | None = None, right: bool = False
) -> StoredNode:
    return StoredNode(
        id=name,
        parent=parent,
        depth=1,
        num_tokens=1,
        steps=(text or name,),
        scores=(0.25,),
        count=2,
        num_sampled=2,
        is_finished=weight is not None,
        is_cut=False,
        weight=weight,
        score=None if weight is None else 0.25,
        outcome=None if weight is None else "right" if right else "wrong",
        prediction=None if weight is None else text or "7",
    )


def tree(
    problem: str, *nodes: StoredNode, chosen: str | None = None, text: str = "?"
) -> StoredTree:
    return StoredTree(
        problem_id=problem,
        problem=text,
        answer=text,
        meta={},
        nodes=nodes,
        chosen=chosen,
        is_spent=False,
        cost=StoredCost(**dict.fromkeys(StoredCost.__dataclass_fields__, 0)),
    )


def write_trees_run(folder: Path, *trees: StoredTree) -> str:
    write_trees(Store(str(folder), create=True), "0" * 16, "test", trees, {})
    return write_run(folder, [solution(0, ["so\n"], [0])], None)


def show_trees(folder: Path, *trees: StoredTree) -> str:
    page = report_page([write_trees_run(folder, *trees)], f"{folder}.html").read_text(
        encoding="utf-8"
    )
    return page[page.index('<section id="trees-0">') : page.rindex("</section>")]


SMALL = tree(
    "one",
    node("start"),
    node("given-up"),
    node("end", "start", weight=2, right=True),
    node("other", "start", weight=1),
    node("left", "start"),
    chosen="end",
)


def test_nodes_are_nested_and_marked(tmp_path: Path) -> None:
    markup = show_trees(tmp_path / "run", SMALL)
    assert markup.count("<details") == 1
    opened = re.search(r'<details class="node" open="">(.*?)</details>', markup, re.DOTALL)
    assert opened is not None
    summary, inside = opened[1].split("</summary>")
    assert "start" in summary and "score 0.25, sampled 2 times" in summary
    leaves = re.findall(r'<div class="(node[^"]*)">(.*?)</div>', inside)
    assert [kind for kind, _ in leaves] == ["node leaf", "node leaf", "node pruned leaf"]
    assert 'chip right">right: 7, weight 2<' in leaves[0][1] and ">chosen<" in leaves[0][1]
    assert 'chip wrong">wrong: 7, weight 1<' in leaves[1][1] and ">chosen<" not in leaves[1][1]
    assert '<div class="node pruned leaf"><span class="prose">given-up<' in markup


def test_one_tree_of_each_kind_is_shown(tmp_path: Path) -> None:
    missed = [node("bad", weight=1), node("good", weight=1, right=True)]
    markup = show_trees(
        tmp_path / "run",
        SMALL,
        tree("two", *SMALL.nodes, chosen="end"),
        tree("three", *missed, chosen="bad"),
        tree("four", node("unfinished")),
    )
    assert re.findall(r"<h3>(.*?)</h3>", markup) == [
        "one: the chosen solution is right",
        "three: a right solution was not chosen",
        "four: no solution is right",
    ]


def test_size_is_bounded_and_the_result_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MAX_NODES", 5)
    many = [node(f"n{i}", text="x" * 5000) for i in range(100)]
    markup = show_trees(
        tmp_path / "run",
        tree("big", *many, node("a"), node("b", "a"), node("c", "b", weight=1), chosen="c"),
    )
    assert len(re.findall(r'class="node[ "]', markup)) == 5
    assert "98 nodes are left out" in markup and ">chosen<" in markup
    assert "x" * page.MAX_TEXT not in markup
    chain = [node(f"d{i}", f"d{i - 1}" if i else "") for i in range(3000)]
    monkeypatch.setattr(page, "MAX_NODES", 4000)
    assert (
        len(re.findall(r'class="node[ "]', show_trees(tmp_path / "deep", tree("deep", *chain))))
        == page.MAX_LEVELS
    )


def test_other_runs_have_no_trees(tmp_path: Path) -> None:
    assert convert_trees_to_page_data(Store(plain_run(tmp_path / "run"))) == []
