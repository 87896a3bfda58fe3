"""Sizes in bytes, as text for people."""


def amount(size: float) -> str:
    """Bytes in the largest unit that fits, with one decimal: ``1.2 MB``."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size:,.0f} bytes"
