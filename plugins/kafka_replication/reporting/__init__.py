"""What a person or a program is told: the arithmetic of ranges, status, tables and JSON documents."""
