"""What one site adds to Stackyard."""
