"""Requests before a run that find out which later ones would be refused. They change nothing."""
