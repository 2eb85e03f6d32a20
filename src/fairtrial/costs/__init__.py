"""Costs: prices of devices, the Pareto frontier, and recommendations under constraints."""
