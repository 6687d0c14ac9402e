"""Measurements of speed and memory; ``README.md`` beside this file says how to run them."""
