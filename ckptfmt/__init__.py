"""The checkpoint format: an exact, verifiable store for the state of running episodes.

Bytes, keys and JSON values; synchronous; on local disk or an object store.
``docs/format.md`` specifies what it writes.
"""
