"""The quarantine topic: how a record that was set aside lies there, is found and is read again."""
