"""The bodies of the commands, callable from Python and from the command line."""
