"""Public fakes, builders and property strategies, for tests and `sim.swarm` alone. Production code never imports this package."""
