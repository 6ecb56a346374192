"""Moves Apache Kafka clusters from ZooKeeper to KRaft, provably and without surprises."""
