"""The verbs that make results verifiable: artifact, preregister, bundle, verify-bundle, export, deposit."""
