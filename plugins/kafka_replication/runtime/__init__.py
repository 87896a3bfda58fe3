"""How a process behaves: one budget of time, repeating, ending in order at a signal, and places where a test may kill
it.
"""
