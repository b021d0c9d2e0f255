"""A backend's author holds a Node builder to the matrix."""

PROVIDER = {"key": "virtual-kubelet.io/provider", "value": "outpost", "effect": "NoSchedule"}


def build_node(base):
    labels = {"type": "virtual-kubelet", "kubernetes.io/hostname": f"{base}-vk-podman"}
    ours = {"runtime": "virtual", "backend": "vk-podman", "host": base}
    labels |= {f"outpost.dhnt.io/{key}": value for key, value in ours.items()}
    return {"metadata": {"name": f"{base}-vk-podman", "labels": labels}, "spec": {"taints": [PROVIDER]}}


def test_my_nodes_are_what_their_profile_promises(conformance):
    conformance("vk-podman").holds(build_node)
