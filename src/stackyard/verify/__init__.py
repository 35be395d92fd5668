"""How a stack is proved before anybody sees it."""
