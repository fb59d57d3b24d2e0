"""Greedy replies and the rules that judge them."""
