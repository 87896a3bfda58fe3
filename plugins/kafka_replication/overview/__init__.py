"""One look over all replications, from the store alone: what a page, a board and a table show."""
