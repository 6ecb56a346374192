"""What is seen of a cluster's controllers from outside, over the Kafka protocol; ours and Kafka's answer alike.

One poller for all that looks at a quorum: a rollout, a hand-over, `migrator top`, `migrator unregister`. Looks are
values, raise nothing, are bounded in time and bytes, and keep from look to look only what makes the next one cheaper.
What nobody answers is not known, and never taken for well.
"""
