"""Probes make facts from models."""
