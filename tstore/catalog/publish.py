"""The last step of every job that writes: rows, then the marker that makes them visible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

import tstore
from tstore.catalog.catalog import commit, write_tables
from tstore.catalog.lease import WriterLease
from tstore.catalog.runs import RunMarker, new_run_id, read_markers
from tstore.objects import ObjectStore


def publish_run(
    objects: ObjectStore,
    writer: WriterLease,
    kind: str,
    told: dict[str, Any],
    tables: Mapping[str, pa.Table | Iterator[pa.Table]],
    counts: dict[str, Any],
    *,
    workspace: str = "",
    merged: Sequence[str] = (),
) -> str:
    """Write the rows, then the marker; the run exists once the marker does.

    Parameters
    ----------
    objects : ObjectStore
    writer : WriterLease
    kind : str
        See `RunMarker`.
    told : dict
        What the job was asked to do; the marker's ``options``.
    tables : mapping
        See `write_tables`.
    counts : dict
        Totals of the run; gets ``bytes_catalog``.
    workspace : str
        Token of the workspace that the run came from.
    merged : sequence of str
        Parts whose rows are among `tables`; see `tstore.catalog.merge`.

    Returns
    -------
    str
        The run id.

    Raises
    ------
    LeaseLostError
        Another job took the lease; nothing was committed.
    """
    writer.check()
    run_id = new_run_id(max((marker.run_id for marker in read_markers(objects)), default=None))
    parts = write_tables(objects, run_id, tables)
    counts["bytes_catalog"] = sum(part.nbytes for rows in parts.values() for part in rows)
    marker = RunMarker(
        run_id=run_id,
        kind=kind,
        tool_version=tstore.__version__,
        options=told,
        counts=counts,
        tables=parts,
        workspace=workspace,
        merged=list(merged),
    )
    writer.announce(run_id)
    commit(objects, marker)
    return run_id
