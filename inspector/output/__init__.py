"""How results and talk leave the program: text, JSON, NDJSON, progress."""
