"""The built-in recipes, one module each. The module's name is the word that the user types."""
