"""The pipeline, one module per verb. Only this package may combine the other packages."""
