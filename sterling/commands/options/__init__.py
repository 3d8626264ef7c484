"""Options of the command line from the fields of an algorithm's Config."""
