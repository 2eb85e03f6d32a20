"""Nouns and contracts. Everything else in Fairtrial rests on these; they rest on nothing of ours."""
