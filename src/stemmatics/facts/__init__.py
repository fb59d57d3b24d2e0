"""The contracts of facts: one file a kind, with its parameters, version, tables and constructor.

A kind is a ``core.facts.FactKind``, registered under the entry points ``stemmatics.facts``; its probe has
the same name under ``stemmatics.probes``.
"""
