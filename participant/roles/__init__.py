"""What a participant knows of its server: the hooks of the roles, and those of any server."""
