"""Presets: functions that return a ready study, each with a name and a line for `stemma init`."""
