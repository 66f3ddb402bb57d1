"""Tests of the tables of facts about models."""

from functools import partial

import numpy as np
import pytest

import rope_any as ra
from rope_any.config.tables import grid_rules, models, rules, towers
from rope_any.config.tables.rows import TOWER, GridModel, Indexer, Model, Numbering, Score, by_name


def test_one_row_has_all_names_and_no_name_two_rows():
    assert by_name({"a b": 1, "c": 2}, {"d": 3}) == {"a": 1, "b": 1, "c": 2, "d": 3}
    with pytest.raises(ra.ArgumentValueError, match=r"^names must not be those of an earlier row; got b$"):
        by_name({"a b": 1}, {"b": 2})


# A model whose facts concern all readers: its text with an indexer and a score scale, its tower, its streams.
TOY = Model(
    text="*_text",
    parts={"vision_config": "*_vision"},
    stream=Numbering(by_frame=True, newline=True),
    own={
        "*_text": Model(
            "interleaved",
            base=50_000.0,
            sizes={"head_dim": 16},
            score=Score(partial(rules.by_key, key="query_scale", default=0.25)),
            indexer=Indexer("half", last=True, layers=partial(rules.by_type, types=("full_attention",))),
            pattern=partial(rules.every, n=2),
        ),
        "*_vision": TOWER.sized(64, heads=4)._replace(base=100.0, grid=partial(grid_rules.from_zero, first=1)),
    },
)


def test_one_row_adds_a_model_with_all_its_parts(monkeypatch):
    rows = models.models({"toy": TOY})
    assert list(rows) == ["toy", "toy_text"]
    for table in (models.MODELS, models.ALL):
        for name, row in rows.items():
            monkeypatch.setitem(table, name, row)
    monkeypatch.setitem(towers.TOWERS, "toy_vision", models.own(rows, GridModel)["toy_vision"])
    text = {"num_hidden_layers": 4, "index_head_dim": 32}
    config = {"model_type": "toy", "text_config": text, "vision_config": {"spatial_merge_size": 2}}
    config |= {"image_token_id": 7, "video_token_id": 8}

    read = ra.config.read(config)
    assert read.parts == ("text", "indexer", "vision") and read.score_scale() == 0.25
    rotation, indexer, vision = (read.rope(part=part) for part in read.parts)
    assert rotation == ra.Rope(ra.frequencies(16, base=50_000.0), pairing="interleaved")
    assert (indexer.pairing, indexer.start, indexer.frequencies) == ("half", 16, rotation.frequencies)
    assert [one is not None for one in read.layers(part="indexer")] == [False, True, False, True]
    assert vision.frequencies == ra.axes.assigned(ra.frequencies(8, base=100.0) * 2, [0] * 4 + [1] * 4)
    assert read.positions((1, 2), part="vision", like=np.empty(0)).tolist() == [[1, 1], [1, 2]]
    stream = read.positions(token_ids=[[1, 7, 7, 1]], grids=[(1, 2, 2)], like=np.empty(0))
    assert stream.tolist() == [[[0, 0, 0], [1, 1, 1], [1, 1, 2], [3, 3, 3]]]
