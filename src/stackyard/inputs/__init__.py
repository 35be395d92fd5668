"""Reads stack.yaml, site.yaml, environment.yml and requirements.txt into frozen, validated models."""
