"""Whole controllers in one process: the real `run_node`, on machines, a network and a clock that a seed decides.

See docs/simulation.md.
"""
