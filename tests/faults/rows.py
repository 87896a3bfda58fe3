"""The fault table. What each row does stands in the files by whom it hits."""

from __future__ import annotations

from tests.faults import (
    certificate_rows,
    data_rows,
    hbase_rows,
    line_rows,
    lost_end_rows,
    opensearch_rows,
    our_rows,
    partial_rows,
    profiles,
    sick_rows,
    source_rows,
    store_rows,
    target_rows,
    turn_rows,
)

KAFKA = (
    *target_rows.ROWS,
    *partial_rows.ROWS,
    *lost_end_rows.ROWS,
    *line_rows.ROWS,
    *source_rows.ROWS,
    *sick_rows.ROWS,
    *certificate_rows.ROWS,
    *our_rows.ROWS,
    *turn_rows.ROWS,
    *store_rows.ROWS,
    *data_rows.ROWS,
)
ROWS = {
    row.name: row.under(profiles.current())
    for row in (
        *(() if profiles.current().newest else KAFKA),
        *(opensearch_rows.ROWS if profiles.name() in opensearch_rows.PROFILES else ()),
        *(hbase_rows.ROWS if profiles.name() in hbase_rows.PROFILES else ()),
    )
}
