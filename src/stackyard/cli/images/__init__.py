"""The verbs of images and containers."""
