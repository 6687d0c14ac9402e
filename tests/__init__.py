"""The tests; README.md beside this file says where a new one goes."""
