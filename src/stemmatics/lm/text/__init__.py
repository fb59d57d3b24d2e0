"""Documents from files, folders, archives and the Hub."""
