"""Computations that a stack of clients does faster by hand: convolutions in which every client has its own kernel."""
