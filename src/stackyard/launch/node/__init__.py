"""Programs that run on the nodes: the agent (one per node), its messages to the hub, and the starter of local ranks.

Standard library only, and no other room of Stackyard.
"""
