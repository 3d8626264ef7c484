"""Tasks from elsewhere: files, the user's own code, other packages."""
