"""Finds out why a client cannot work: the meaning of Kafka's errors, and a broker's answers on a connection of our
own.
"""
