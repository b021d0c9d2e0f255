"""Every string that stands on the wire, once.

Values are those of contract §1 unless a comment says that they are ours.
"""

from typing import Final, NewType

NodeName = NewType("NodeName", str)
NodeUid = NewType("NodeUid", str)
Backend = NewType("Backend", str)

GROUP: Final = "outpost.dhnt.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "RuntimeProfile"
PLURAL: Final = "runtimeprofiles"
CRD_NAME: Final = f"{PLURAL}.{GROUP}"

RUNTIME_LABEL: Final = f"{GROUP}/runtime"
BACKEND_LABEL: Final = f"{GROUP}/backend"
HOST_LABEL: Final = f"{GROUP}/host"
IDENTITY_LABELS: Final = (RUNTIME_LABEL, BACKEND_LABEL, HOST_LABEL)

# What the runtime probe says of an agent (contract §1.1-1.3).
RUNTIME_READY_LABEL: Final = f"{GROUP}/runtime-ready"
UNAVAILABLE_TAINT_KEY: Final = f"{GROUP}/runtime-unavailable"
UNAVAILABLE_TAINT_VALUE: Final = "sandbox"
UNAVAILABLE_TAINT_EFFECT: Final = "NoSchedule"
UNAVAILABLE_REASON_ANNOTATION: Final = f"{GROUP}/runtime-unavailable-reason"
UNAVAILABLE_REASON: Final = "runtime sandbox probe did not become Ready"
PROBE_NAME: Final = "dks-runtime-probe"
NAME_LABEL: Final = "app.kubernetes.io/name"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
PROBE_MANAGER: Final = "nodecap"
PROBE_SELECTOR: Final = f"{NAME_LABEL}={PROBE_NAME}"

PROVIDER_TAINT_KEY: Final = "virtual-kubelet.io/provider"
PROVIDER_TAINT_EFFECT: Final = "NoSchedule"
PROVIDER_TAINT_VALUE: Final = "outpost"

# Ours: lists the marks that we wrote on a node, so that only those are ever taken back.
MARKS_ANNOTATION: Final = f"{GROUP}/managed-marks"

# Virtual-kubelet's own ways of saying what a node is (node-facts §4).
TYPE_LABEL: Final = "type"
VIRTUAL_KUBELET_TYPE: Final = "virtual-kubelet"
VIRTUAL_KUBELET_ANNOTATION_PREFIX: Final = "virtual-kubelet.io/"

# k3s's own ways (node-facts §3).
NODE_ARGS_ANNOTATION: Final = "k3s.io/node-args"
# Ours to add to where the cloud controller of k3s owns the list of addresses (node-facts §3.8).
K3S_EXTERNAL_IP_ANNOTATION: Final = "k3s.io/external-ip"
K3S_PROVIDER_ID_PREFIX: Final = "k3s://"
K3S_VERSION_MARK: Final = "+k3s"

CONTROL_PLANE_ROLES: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
# Ours: the endpoint that the shipped admission policy puts into each status of the node, as <address>:<port>.
ENDPOINT_ANNOTATION: Final = f"{GROUP}/kubelet-endpoint"
PINNING_POLICY: Final = "clusterconform-pin-endpoint"
# Ours: a node so annotated is never reaped.
KEEP_ANNOTATION: Final = f"{GROUP}/keep"
# Ours, on the agent profile: a person approves the reaping of one node, as <node>/<uid>.
APPROVE_ANNOTATION: Final = f"{GROUP}/approve-reap"
# Ours, on the operator's Lease: when its holder last listed everything, and when it last heard of nodes.
RESYNCED_ANNOTATION: Final = f"{GROUP}/resynced-at"
HEARD_ANNOTATION: Final = f"{GROUP}/heard-at"

CONFORMANT_CONDITION: Final = "RuntimeConformant"
FIELD_MANAGER: Final = "clusterconform"

# The admission policy of deploy/base/admission.yaml without which nothing is deleted.
FENCE_POLICY: Final = "clusterconform-fence-delete"

NAMESPACE: Final = "clusterconform-system"
SERVICE_ACCOUNT: Final = "clusterconform"
STATE_CONFIGMAP: Final = "clusterconform-state"
SEEDED_KEY: Final = "seeded"
# In the state, from a first installation until its ledger is made.
FIRST_LEDGER_KEY: Final = "first-ledger"
LEDGER_CONFIGMAP: Final = "clusterconform-ledger"
LEDGER_KEY: Final = "ledger.jsonl"
TRUST_KEY: Final = "trust.json"
TERM_KEY: Final = "term"
# In a ledger that was there from the beginning.
LEDGER_COMPLETE_KEY: Final = "complete"
LEASES_NAMESPACE: Final = "kube-node-lease"
