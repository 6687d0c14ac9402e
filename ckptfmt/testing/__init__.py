"""The kit for whoever builds on the format: contract suites, faults, models.

Nothing that ships outside it imports it; ``store_contract`` needs pytest.
"""
