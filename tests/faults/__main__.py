"""``make faults``: every fault many times, on real clusters, resumable; see docs/reliability.md."""

from __future__ import annotations

import typer

from tests.faults.session import main

if __name__ == "__main__":
    typer.run(main)
