"""Programs that make documentation, golden files and the site. None of them is part of the package."""
