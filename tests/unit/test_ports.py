"""Ports that are chosen at the same time by several processes."""

from __future__ import annotations

import pytest

from stack.ports import SHARE, free_ports, take_share


def test_shares_have_no_port_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHARE, "0/1")
    found = []
    for number in range(3):
        take_share(number, 3)
        found.append({port % 3 for port in free_ports(200)})
    assert sorted(map(tuple, found)) == [(0,), (1,), (2,)]


def test_no_port_is_given_twice_before_a_server_listens_on_it() -> None:
    assert not set(free_ports(200)) & set(free_ports(200))
