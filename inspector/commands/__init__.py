"""One module a command; :mod:`inspector.cli` lists them and imports one when it is called."""
