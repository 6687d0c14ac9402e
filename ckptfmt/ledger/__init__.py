"""Capture ledgers: what a policy server records of each model call of a rollout."""
