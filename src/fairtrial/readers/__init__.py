"""Readers turn files, folders and databases of other training tools into runs with series and configurations."""
