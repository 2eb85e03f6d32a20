"""Readers: files, folders and databases that other training tools wrote, as runs with series and configurations."""
