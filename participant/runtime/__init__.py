"""The asyncio shell round :mod:`participant.core`: it obeys effects, in order."""
