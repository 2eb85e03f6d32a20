"""Output of results: charts, and documents and tables in the formats that people and programs read."""
