"""Greedy replies, and the rules that classify them."""
