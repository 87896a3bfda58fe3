"""TLS, the kinds of SASL login, and tokens: how a connection logs in."""
