"""The runtime that a server embeds to take part in checkpoints, and what a controller calls."""
