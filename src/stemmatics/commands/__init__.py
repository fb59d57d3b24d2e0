"""The commands, callable from Python and from the command line: one file a command."""
