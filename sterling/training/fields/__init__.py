"""The fields of an algorithm's Config: their types, presets, fitted defaults and schedules."""
