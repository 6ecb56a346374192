"""The report of a rollout: one page, and JSON, of what happened, or of what a plan is going to do.

`after` and `before` make the facts, `page` shows them.
"""
