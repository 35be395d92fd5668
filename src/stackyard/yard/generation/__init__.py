"""What users see: numbered generations and the link that names the current one."""
