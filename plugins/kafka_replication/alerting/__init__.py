"""Alerts: which causes are open, which of them a person is told now, and the ways to tell. The first two are pure."""
