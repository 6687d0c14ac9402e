"""The protocol of one participant, without I/O: what happens, decided from what is known."""
