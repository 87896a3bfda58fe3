"""The output for people and programs: the arithmetic of ranges, status, tables and JSON documents."""
