"""What people write: stack.yaml, site.yaml, environment.yml and requirements.txt become frozen, validated models."""
