"""Serve a trained policy over HTTP: sessions, batches of concurrent requests, answers."""
