from __future__ import annotations

import json

from shardkeep.demo.report import Check, Death, DemoReport, EpochUse

DEATH = Death(
    rank=1, pid=4711, step=33, moment="computing", resumed_step=30, workers_before=4, workers_after=3,
    lost_steps=3, lost_rows=192, away_s=1.5,
)  # fmt: skip

REPORT = DemoReport(
    output="shardkeep-demo",
    seed=0,
    workers=4,
    epochs=3,
    batch_size=16,
    records=1438,
    held_out_records=359,
    size_bytes=2_600_000,
    shard_records=(159, 80, 240, 40, 319, 120, 280, 200),
    steps=81,
    lost_steps=3,
    images_per_second=5149.3,
    seconds=4.4,
    peak_open_files=12,
    open_files_limit=1024,
    accuracy=0.972,
    rows_merged=4314,
    deaths=(DEATH,),
    uses=tuple(EpochUse(epoch, 1438, 1438, 0, 0) for epoch in range(3)),
    audit={"ok": True, "epochs": [{"epoch": epoch, "ok": True} for epoch in range(3)]},
    checks=(Check("audit", True, "each once"), Check("learned", True, "97.2%")),
)


def test_report_is_json_serialisable() -> None:
    back = json.loads(json.dumps(REPORT.to_dict()))
    assert back["ok"] is True
    assert back["deaths"][0]["resumed_step"] == 30
    assert back["shard_records"] == list(REPORT.shard_records)
