"""Third-party images as bases of SIF and OCI images: their sources, contents and storage."""
