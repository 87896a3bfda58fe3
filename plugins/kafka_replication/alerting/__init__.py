"""Alerts: decides which causes are open and which of them to announce, and sends the messages. The decision is pure."""
