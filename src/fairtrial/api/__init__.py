"""The pipeline: one file per verb. The only place that knows more than one room."""
