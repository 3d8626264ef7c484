"""Show a folder of runs on a local page: read runs as they are written, serve or export them."""
