"""How to say it? Tables and documents in the formats that people and programs read."""
