"""Reads rows: page by page, each a call of its own, so that nothing is left open in the gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from kafka_replication.hbase.client import Answer, Client, thrift
from kafka_replication.hbase.rows import FAMILY, ORIGIN, Cells, Span, cells_of
from kafka_replication.hbase.tables import Tables
from kafka_replication.model.errors import GapFound

FIRST_PAGE, LONGEST_PAGE = 10, 2_000  # rows that one call returns
PAGE_BYTES: Final = 2 << 20
KEYS_ALONE: Final = b"FirstKeyOnlyFilter() AND KeyOnlyFilter()"
_SIZES_ALONE: Final = b"KeyOnlyFilter(true)"  # the length of each value, in four bytes, in its place
Row = tuple[bytes, Cells]


class Scans:
    """Reads rows of one table, whose values are in ``family``."""

    def __init__(self, client: Client, table: str, family: bytes = FAMILY) -> None:
        self._client, self._table, self._family = client, table, family

    def get(self, row: bytes) -> Cells:
        """The cells of a row; empty if there is none. Raises GapFound if there is no table."""
        return self._cells(self._asked("get", thrift().TGet(row=row)))

    def gets(self, rows: Sequence[bytes], *names: bytes) -> dict[bytes, Cells]:
        """The cells of those of these rows that are there; only these columns of them, if any is named.

        Raises GapFound if there is no table.
        """
        found = self._asked("getMultiple", gets(rows, self._family, *names)) if rows else []
        return {result.row: self._cells(result) for result in found if result.row}

    def large_gets(self, rows: Sequence[bytes]) -> Iterator[dict[bytes, Cells]]:
        """The same, of rows that may be large: some at a time (`pages`)."""
        asked = [thrift().TGet(row=row, filterString=_SIZES_ALONE) for row in rows]
        for page in pages(_size(result) for result in self._asked("getMultiple", asked) if result.row):
            yield self.gets(page)

    def rows(self, span: Span, *, backwards: bool = False, **settings: Any) -> Iterator[Row]:
        """The rows in a span, in the order of their keys, or ``backwards``. ``settings`` are those of a scan.

        Raises GapFound if there is no table.
        """
        for result in self._results(span, backwards=backwards, **settings):
            yield result.row, self._cells(result)

    def large_rows(self, span: Span) -> Iterator[Row]:
        """The same, of rows that may be large: some at a time (`pages`)."""
        for page in pages(map(_size, self._results(span, filterString=_SIZES_ALONE))):
            for result in self._results((page[0], page[-1] + b"\0"), len(page) + 1):
                yield result.row, self._cells(result)

    def _results(
        self, span: Span, size: int = FIRST_PAGE, *, backwards: bool = False, **settings: Any
    ) -> Iterator[Any]:
        """``size``: the rows that are asked for first."""
        begin, end = span
        if end and begin >= end:
            return
        while True:
            page = self._page(begin, end, size, backwards=backwards, **settings)
            yield from page
            if len(page) < size:
                return
            if backwards:
                end = page[-1].row
            else:
                begin = page[-1].row + b"\0"  # the next possible key
            read = sum(len(cell.value) for result in page for cell in result.columnValues) or 1
            size = min(LONGEST_PAGE, max(1, size * PAGE_BYTES // read))

    def origins(self, span: Span, *, backwards: bool = False, **settings: Any) -> Iterator[Row]:
        """The same with the column alone that says where a row came from, without rows that lack it."""
        column = thrift().TColumn(family=FAMILY, qualifier=ORIGIN)
        return self.rows(span, backwards=backwards, columns=[column], **settings)

    def keys(self, span: Span, **settings: Any) -> Iterator[bytes]:
        return (row for row, _ in self.rows(span, filterString=KEYS_ALONE, **settings))

    def foreign(self, spans: Iterable[Span], is_ours: Callable[[bytes, Cells], bool]) -> Iterator[bytes]:
        """The keys of the rows in these spans that are not ours."""
        for span in spans:
            ours = {row for row, cells in self.origins(span) if is_ours(row, cells)}
            yield from (row for row in self.keys(span) if row not in ours)

    def _page(self, begin: bytes, end: bytes, size: int, *, backwards: bool, **settings: Any) -> list[Any]:
        if backwards:  # from the last key before ``end``, down to ``begin``
            scan = thrift().TScan(startRow=end, stopRow=_before(begin), reversed=True, **settings)
            found = self._asked("getScannerResults", scan, size + 1)
            return [result for result in found if result.row != end][:size]
        scan = thrift().TScan(startRow=begin, stopRow=end, caching=size, **settings)
        return list(self._asked("getScannerResults", scan, size))

    def _asked(self, method: str, *args: Any) -> Any:
        try:
            return self._client.call(method, self._table.encode(), *args)
        except Answer as answer:
            tables = Tables(self._client)
            if not tables.exists(self._table):
                raise GapFound(f"{self._table} on the target is gone", "restore it") from answer
            raise tables.judged(self._table, answer) from answer

    def _cells(self, result: Any) -> Cells:
        return cells_of(result, self._family)


def pages(sizes: Iterable[tuple[bytes, int]]) -> Iterator[list[bytes]]:
    """The rows, by their sizes, in parts that one call may ask for: the gateway has a whole answer in its memory."""
    some, size = list[bytes](), 0
    for row, more in sizes:
        if some and (size + more > PAGE_BYTES or len(some) == LONGEST_PAGE):
            yield some
            some, size = [], 0
        some.append(row)
        size += more
    if some:
        yield some


def _size(result: Any) -> tuple[bytes, int]:
    """The row, and the bytes of its values, as `_SIZES_ALONE` tells them."""
    return result.row, sum(int.from_bytes(cell.value, "big") for cell in result.columnValues)


def gets(rows: Sequence[bytes], family: bytes = FAMILY, *names: bytes) -> list[Any]:
    """The requests for these rows; for these columns of them, if any is named."""
    columns = [thrift().TColumn(family=family, qualifier=name) for name in names] or None
    return [thrift().TGet(row=row, columns=columns) for row in rows]


def _before(row: bytes) -> bytes:
    """A key below ``row`` with no key of ours between them: a scan backwards leaves out the row where it stops."""
    if not row:
        return row
    return row[:-1] if row.endswith(b"\0") else row[:-1] + bytes([row[-1] - 1]) + b"\xff" * 32
