"""What knows nothing of learning: errors, numbers, files, the terminal."""
