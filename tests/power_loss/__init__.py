"""What a power cut may leave of the files of this program: recorded operations, and the crash states they allow."""
