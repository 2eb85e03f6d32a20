"""What is trained? One file per recipe; its name is the word the user types."""
