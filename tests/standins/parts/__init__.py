"""What the stand-ins for foreign programs are made of. Standard library only; nothing of the program under test."""
