"""What must never be lost: labels in SQL, arrays in files named by their content."""
