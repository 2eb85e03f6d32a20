"""Which runs? Studies, variants and seeds become fully resolved cells."""
