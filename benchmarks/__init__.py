"""What the program promises about its speed, measured as ratios against plain tools side by side in one run."""
