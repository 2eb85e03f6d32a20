"""One plug-in of each kind. Each is one file, and imports nothing of Fairtrial but `fairtrial.plugins`."""
