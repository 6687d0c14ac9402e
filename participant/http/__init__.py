"""HTTP: the control routes of a server, and the clients that call servers."""
