"""How a connection logs in: TLS, the kinds of SASL login, and tokens."""
