"""The pages of docs/ that are written from the code: ``python -m stack.pages`` writes them all."""
