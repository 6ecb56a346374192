"""Suites that belong to clients of Kafka, run against real brokers on our quorum, and then on Kafka's controllers."""
