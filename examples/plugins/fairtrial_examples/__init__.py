"""One plug-in of each kind. Each is one file and imports only `fairtrial.plugins` from Fairtrial."""
