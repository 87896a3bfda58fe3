"""OpenSearch (and Elasticsearch 7) as a target: the only package that imports opensearchpy. docs/opensearch.md says
what it promises.

`documents` is pure; `bulk` writes documents and judges the answer about each; `journal` is the ledger: a document that
is replaced only if nobody else replaced it.
"""
