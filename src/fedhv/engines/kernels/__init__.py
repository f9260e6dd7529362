"""Layers that a stack of clients, each with weights of its own, does faster by hand: convolutions and GroupNorm."""
