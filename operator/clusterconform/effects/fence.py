"""Is the admission policy in force that keeps us from deleting what we should not?

Asked by trying: a dry-run DELETE of a node that exists, without the resourceVersion that the policy wants. Only
the policy's own refusal proves anything: a 403 may as well come from a missing right, a 404 or 409 from a node
that has changed, and a 200 says that nothing stands between us and any node.
"""

import logging
from collections.abc import Iterable
from typing import Final

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.names import FENCE_POLICY
from clusterconform.contract.request import JSON, Request
from clusterconform.effects.cluster import Cluster
from clusterconform.effects.errors import ApiError, ConflictError, ForbiddenError, NotFoundError

log = logging.getLogger(__name__)

# A node may go while it is asked about; so many at once do not.
_TRIES: Final = 3


async def stands(cluster: Cluster, nodes: Iterable[NodeFacts]) -> bool | None:
    """Whether the policy refuses what it must; None where there is no node to try it on.

    Args:
        cluster: The API client.
        nodes: Nodes of the cluster, the ones first that nobody would miss; the first that still exists is enough.
    """
    tried = False
    for node, _ in zip(nodes, range(_TRIES), strict=False):
        tried = True
        try:
            await cluster.send(_trial(node))
        except (NotFoundError, ConflictError):
            continue
        except ForbiddenError as error:
            if f"ValidatingAdmissionPolicy '{FENCE_POLICY}' with binding" in str(error):
                return True
            _say(str(error))
        except ApiError as error:
            _say(str(error))
        else:
            _say("a dry-run DELETE was not refused")
        return False
    return False if tried else None


def _trial(node: NodeFacts) -> Request:
    # In the body: the API server ignores dryRun in the query of a DELETE that has one.
    body = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "dryRun": ["All"],
        "preconditions": {"uid": node.uid},
    }
    return Request(method="DELETE", path=f"/api/v1/nodes/{node.name}", content_type=JSON, body=body)


def _say(answer: str) -> None:
    fields = {"policy": FENCE_POLICY, "answer": answer}
    log.warning("the admission policy that fences us is not in force", extra={"fields": fields})
