"""Print 5,000 nodes as ``kubectl get nodes -o json`` would: three of four are agents, the rest virtual."""

import json
import sys
from datetime import UTC, datetime

from clusterconform.sandbox.nodes import agent_node, virtual_node

BORN = datetime(2026, 8, 1, 12, tzinfo=UTC)
NODES = [
    agent_node(f"host{index}", index=index, now=BORN)
    if index % 4
    else virtual_node(f"host{index}", "vk-podman", now=BORN)
    for index in range(5000)
]
json.dump({"apiVersion": "v1", "kind": "List", "items": NODES}, sys.stdout, indent=4)
