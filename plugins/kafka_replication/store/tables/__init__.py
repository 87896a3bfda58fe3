"""Reading and writing the store's tables: one module for each kind of row, and one that deletes old rows."""
