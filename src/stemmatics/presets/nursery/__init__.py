"""The embedded default: a generated world and the small models that learn it."""
