"""Pages as HTML, from values: Jinja2's templates, plots as numbers, maps as SVG. Knows no server and no Airflow.

Nothing comes from another host: htmx and uPlot lie in `static`, with their licences, as their npm packages have them.
"""

PREFIX = "/kafka-replication"  # of the pages, on Airflow's API server
ROUTE = "replications"  # of the first page, in Airflow's own
